// tools/verify/attention/inputs.cpp: see inputs.hpp.
#include "verify/attention/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "api/operand_list.hpp"
#include "base/size.hpp"
#include "policy/dtype.hpp"
#include "problem/instance.hpp"

namespace falchion::tools::storm {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

std::vector<std::int32_t> as_int32(const std::vector<std::int64_t>& list) { return {list.begin(), list.end()}; }
std::vector<std::int32_t> cumulative(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> out{0};
  for (const std::int64_t n : lengths) out.push_back(out.back() + static_cast<std::int32_t>(n));
  return out;
}

/// Of a cache with pages.
PageTable table_of(const Problem& p) {
  if (p.attention.page_size == 0) return {};
  // New keys are written wherever they belong, before the first key in use too.
  return make_page_table(p.attention, p.used_k, p.attention.append ? Lengths{} : p.first_k, PageOrder::of(p.pages),
                         random_bits(p.data.seed, 12), {p.page_count, p.page_columns, p.page_starts});
}

}  // namespace

AttentionInputs::AttentionInputs(const Problem& problem)
    : p_(problem),
      a_(problem.attention),
      table_(table_of(p_)),
      q_(a_.packed ? Extents{1, sum(p_.lengths_q) + p_.spare} : Extents{a_.b, a_.s_q}),
      k_(extents_of_k()) {}

AttentionInputs::Extents AttentionInputs::extents_of_k() const {
  if (a_.page_size > 0) return {table_.count, a_.page_size};
  return a_.packed && !a_.cache ? Extents{1, sum(p_.lengths_k) + p_.spare} : Extents{a_.b, a_.s_k};
}

Contents::Shape AttentionInputs::scores(const Broadcast& broadcast) const {
  Contents::Shape shape{a_.b, a_.h_q, a_.s_q, a_.s_k};
  for (std::size_t axis = 0; axis < 4; ++axis)
    if ((broadcast.one >> axis & 1U) != 0) shape[axis] = 1;
  return shape;
}

unsigned AttentionInputs::ones_of(const OperandField& of) const {
  if (&of == operand_named("bias")) return p_.bias.one;
  if (&of == operand_named("mask")) return p_.mask.one;
  if (&of == operand_named("k_scale")) return p_.k_scale.one;
  if (&of == operand_named("v_scale")) return p_.v_scale.one;
  if (&of == operand_named("q_scale")) return p_.q_scale.one;
  const bool by_batch =
      (p_.slopes_by_batch && &of == operand_named("alibi")) || (p_.sinks_by_batch && &of == operand_named("sinks"));
  return of.shape == OperandField::head_numbers && !by_batch ? 1 : 0;
}

void AttentionInputs::lay_out(Image* image) {
  Operands rows;  // what the problem alone does not say: packed rows, pages
  rows.q.shape[1] = q_.rows;
  rows.k.shape = {k_.batch, k_.rows, 0, 0};
  rows.page_table.shape[1] = table_.columns;
  rows.rotary.shape[1] = p_.positions;
  if (!table_.starts.empty()) rows.page_starts = table_.starts.data();
  each_input(*this, [&](const OperandField& of, Input& input) {
    Contents::Shape shape = shape_of(a_, rows, of);
    for (std::size_t axis = 0; axis < 4; ++axis)
      if ((ones_of(of) >> axis & 1U) != 0) shape[axis] = 1;
    const bool f32 =
        of.type == OperandField::f32 || (of.type == OperandField::f32_or_same && p_.bias_dtype == DType::f32);
    if (of.type == OperandField::i32) {
      input.place = image->add(of.name, DType::i32, shape, p_.storage_of(of.name));
      return;
    }
    const DType dtype = of.type == OperandField::boolean ? DType::boolean
                        : f32                            ? DType::f32
                        : of.type == OperandField::as_k  ? dtype_of_k(a_)
                        : of.type == OperandField::as_v  ? dtype_of_v(a_)
                                                         : a_.dtype;
    input.place = image->add(of.name, dtype, shape, p_.storage_of(of.name));
    input.data = Contents(dtype, shape, p_.storage_of(of.name).zero);
  });
  if (p_.rng_in_memory) rng_at_ = image->add_array("rng.at", 2 * sizeof(std::uint64_t));
  if (a_.packed) cu_q_.data = cumulative(p_.lengths_q);
  if (a_.packed && !a_.cache) cu_k_.data = cumulative(p_.lengths_k);
  starts_.data = table_.starts;
#define FALCHION_LENGTHS(key, ...) \
  if (a_.key) key##_.data = as_int32(p_.key);
#include "base/fields.def"
  each_array(*this, [&](Array& array) { array.offset = image->add_array(array.name, array.data.size() * 4); });
}

/// Of numbers of 8 bits that are scaled: such that they have many values.
float AttentionInputs::deviation_of(bool scaled, DType dtype, float wanted) {
  return !scaled ? wanted : dtype == DType::i8 ? 40.F : 1.F;
}

/// Such that numbers have about the deviation that is wanted. Some are a power of two apart, some negative. A negative
/// one makes rows NaN where q has 8 bits, so there in one problem of 16 a few are that, 0, NaN or Inf.
void AttentionInputs::fill_scales(Contents* data, DType dtype, float wanted, std::uint64_t draws) {
  const float usual = wanted / deviation_of(true, dtype, wanted);
  const bool of_scores = is_8bit(a_.dtype) && data != &in_.v_scale.data, odd = stream(20) % 16 == 0;
  data->change([&](auto b, auto j, auto h, auto, float) {
    const std::uint64_t bits = random_bits(stream(draws), static_cast<std::uint64_t>((b * 4099 + j) * 131 + h));
    const float x = usual * (static_cast<float>(bits % 64) + 32) / 64;
    constexpr float kOdd[] = {0, -0.F, -1, kNan, kInf};
    if (of_scores) return odd && bits / 64 % 32 == 1 ? kOdd[bits / 2048 % 5] : bits / 64 % 16 == 0 ? x / 16 : x;
    return bits / 64 % 16 == 0 ? x / 16 : bits / 64 % 16 == 1 ? -x : x;
  });
}

/// All codes alike; NaN in one problem of 8, where it is rare.
void AttentionInputs::fill_codes(Contents* data, DType dtype, std::uint64_t draws) {
  if (!is_8bit(dtype)) return;
  const bool nans = stream(21) % 8 == 0;
  data->change([&](auto b, auto j, auto h, auto d, float) {
    const std::uint64_t at = static_cast<std::uint64_t>(((b * 4099 + j) * 131 + h) * 257 + d);
    const std::uint64_t bits = random_bits(stream(draws), at);
    if (dtype == DType::i8) return static_cast<float>(static_cast<std::int8_t>(bits & 0xFF));
    const float x = f32_from_e4m3(static_cast<std::uint8_t>(bits & 0xFF));
    return std::isnan(x) && !(nans && bits / 256 % 64 == 0) ? 0.F : x;
  });
}

void AttentionInputs::fill_scores() {
  in_.q.data.fill_normal(stream(1), deviation_of(a_.q_scale, a_.dtype, p_.data.q));
  in_.k.data.fill_normal(stream(2), deviation_of(a_.k_scale, dtype_of_k(a_), p_.data.k));
  in_.v.data.fill_normal(stream(3), deviation_of(a_.v_scale, dtype_of_v(a_), p_.data.v));
  if (p_.data.shape == "codes") {
    fill_codes(&in_.q.data, a_.dtype, 22);
    fill_codes(&in_.k.data, dtype_of_k(a_), 23);
    fill_codes(&in_.v.data, dtype_of_v(a_), 24);
  }
  const auto sign = [&](std::int64_t d) { return (stream(100 + static_cast<std::uint64_t>(d)) & 1) != 0 ? 1.F : -1.F; };
  if (p_.data.shape == "zero") in_.q.data.change([](auto, auto, auto, auto, float) { return 0.F; });
  if (p_.data.shape == "equal")
    in_.k.data.change(
        [&](auto i, auto, auto h, auto d, float) { return in_.k.data.get(a_.page_size > 0 ? 0 : i, 0, h, d); });
  if (p_.data.shape == "rising") {
    in_.q.data.change([&](auto, auto, auto, auto d, float x) { return sign(d) * std::abs(x); });
    const std::int64_t all = a_.page_size > 0 ? k_.batch * k_.rows : k_.rows;
    const float step = 4 * p_.data.k / static_cast<float>(std::max<std::int64_t>(all, 1));
    in_.k.data.change([&](auto i, auto j, auto, auto d, float) {
      return sign(d) * step * static_cast<float>(a_.page_size > 0 ? i * k_.rows + j : j);
    });
  }
}

/// Cosine and sine of some angle, which are the same numbers on every machine.
void AttentionInputs::fill_rotary() {
  in_.rotary.data.change([&](auto, auto position, auto sine, auto pair, float) {
    const std::uint64_t random = random_bits(stream(15), static_cast<std::uint64_t>(position * 128 + pair));
    const float t = static_cast<float>(random % 4096) / 2048 - 1, square = t * t;
    return sine == 0 ? (1 - square) / (1 + square) : 2 * t / (1 + square);
  });
}

void AttentionInputs::fill_bias() {
  in_.bias.data.fill_normal(stream(4), 1);
  const std::string& kind = p_.data.bias;
  if (kind == "normal") return;
  in_.bias.data.change([&](auto b, auto h, auto i, auto j, float x) {
    const auto row = static_cast<std::uint64_t>((b * 131 + h) * 4099 + i);
    const std::uint64_t of_row = random_bits(stream(5), row), own = random_bits(of_row, static_cast<std::uint64_t>(j));
    if (kind == "masks") return own % 8 == 0 ? -kInf : x;
    if (kind == "rows") return of_row % 4 == 0 ? -kInf : x;
    const float low = kind == "mild" ? -1e4F : -1e9F;
    return of_row % 2 == 0 || own % 2 == 0 ? x + low : x;
  });
}

void AttentionInputs::fill_mask() {
  const std::string& kind = p_.data.mask;
  in_.mask.data.change([&](auto b, auto h, auto i, auto j, float) {
    const auto row = static_cast<std::uint64_t>((b * 131 + h) * 4099 + i);
    const std::uint64_t of_row = random_bits(stream(6), row), own = random_bits(of_row, static_cast<std::uint64_t>(j));
    if (kind == "all" || kind == "none") return kind == "all" ? 1.F : 0.F;
    if (kind == "rows" && of_row % 4 == 0) return 0.F;
    return own % 4 == 0 ? 0.F : 1.F;
  });
}

void AttentionInputs::plant() {
  for (const std::string& kind : p_.data.plant) {
    const std::string name = kind.substr(4);
    Contents* to = name == "q" ? &in_.q.data : name == "k" ? &in_.k.data : name == "v" ? &in_.v.data : nullptr;
    if (to == nullptr) continue;  // an operand that only one pass has
    to->plant(random_bits(stream(7), kind.size() * 256 + static_cast<unsigned char>(kind.back())),
              planted_number(kind));
  }
}

std::int64_t AttentionInputs::queries_of(std::int64_t b) const {
  const auto at = static_cast<std::size_t>(b);
  const std::int64_t capacity = a_.packed ? p_.lengths_q[at] : a_.s_q;
  return p_.used_q.empty() ? capacity : std::clamp<std::int64_t>(p_.used_q[at], 0, capacity);
}

/// The keys that are in the cache before the run, or also those that the run appends.
KeyRange AttentionInputs::keys_of_cache(std::int64_t b, bool with_new_keys) const {
  KeyRange out = keys_in_use(a_, table_.pages(std::max<std::int64_t>(a_.page_size, 1)), p_.used_k, p_.first_k, b);
  if (a_.append && !with_new_keys) out.end = std::min(out.end, p_.used_k[static_cast<std::size_t>(b)] - queries_of(b));
  return out;
}

template <class F>
void AttentionInputs::each_row_in_use(bool of_queries, bool with_new_keys, const F& f) const {
  if (!of_queries && a_.cache) {
    const CachePages pages = a_.page_size > 0 ? table_.pages(a_.page_size) : CachePages{};
    for (std::int64_t b = 0; b < a_.b; ++b) {
      const KeyRange keys = keys_of_cache(b, with_new_keys);
      const KeyRows rows = KeyRows::of(pages, b, b, 0);
      for (std::int64_t j = keys.begin; j < keys.end; ++j)
        if (const KeyPlace at = rows.at(j); at.exists()) f(at.batch, at.row);
    }
    return;
  }
  const auto& lengths = of_queries ? p_.lengths_q : p_.lengths_k;
  const auto& used = of_queries ? p_.used_q : p_.used_k;
  std::int64_t begin = 0;
  for (std::int64_t b = 0; b < a_.b; ++b) {
    const auto at = static_cast<std::size_t>(b);
    const std::int64_t capacity = lengths.empty() ? (of_queries ? q_ : k_).rows : lengths[at];
    const std::int64_t length = used.empty() ? capacity : std::clamp<std::int64_t>(used[at], 0, capacity);
    const bool padded = !of_queries && !p_.first_k.empty();
    for (std::int64_t j = padded ? std::clamp<std::int64_t>(p_.first_k[at], 0, length) : 0; j < length; ++j)
      f(lengths.empty() ? b : 0, begin + j);
    if (!lengths.empty()) begin += capacity;
  }
}

void AttentionInputs::spoil(Contents* x, const Storage& storage, bool of_queries, std::size_t rows_axis,
                            bool with_new_keys) const {
  if ((storage.zero & (1U | 1U << rows_axis)) != 0) return;
  const auto [batch, rows] = of_queries ? q_ : k_;
  std::vector<bool> belongs(static_cast<std::size_t>(batch * rows));
  const auto at = [rows = rows](std::int64_t i, std::int64_t j) { return static_cast<std::size_t>(i * rows + j); };
  each_row_in_use(of_queries, with_new_keys, [&](std::int64_t i, std::int64_t j) { belongs[at(i, j)] = true; });
  if (std::find(belongs.begin(), belongs.end(), false) == belongs.end()) return;
  x->change(
      [&](auto i, auto j, auto k, auto, float value) { return belongs[at(i, rows_axis == 1 ? j : k)] ? value : kNan; });
}

/// The same in scales of blocks of keys, of which no key is in use.
void AttentionInputs::spoil_blocks() {
  if (((p_.k_scale.one | p_.storage_of("k_scale").zero) & 3U) != 0) return;
  std::set<std::pair<std::int64_t, std::int64_t>> in_use;
  std::int64_t begin = 0;
  for (std::int64_t b = 0; b < a_.b; ++b) {
    const auto at = static_cast<std::size_t>(b);
    const std::int64_t capacity = a_.packed ? p_.lengths_k[at] : a_.s_k;
    const std::int64_t length = p_.used_k.empty() ? capacity : std::clamp<std::int64_t>(p_.used_k[at], 0, capacity);
    const std::int64_t first = a_.packed ? begin / a_.k_scale_rows + b : 0;
    for (std::int64_t j = 0; j < length; j += a_.k_scale_rows)
      in_use.emplace(a_.packed ? 0 : b, first + j / a_.k_scale_rows);
    begin += capacity;
  }
  in_.k_scale.data.change([&](auto b, auto block, auto, auto, float x) {
    return in_use.count({b, block}) > 0 ? x : kNan;
  });
}

void AttentionInputs::fill() {
  fill_scores();
  in_.k_new.data.fill_normal(stream(13), p_.data.k);
  in_.v_new.data.fill_normal(stream(14), p_.data.v);
  fill_rotary();
  fill_scales(&in_.k_scale.data, dtype_of_k(a_), p_.data.k, 16);
  fill_scales(&in_.v_scale.data, dtype_of_v(a_), p_.data.v, 17);
  fill_scales(&in_.q_scale.data, a_.dtype, p_.data.q, 18);
  if (a_.bias) fill_bias();
  if (a_.mask) fill_mask();
  plant();
  spoil(&in_.q.data, p_.storage_of("q"), true);
  spoil(&in_.k.data, p_.storage_of("k"), false);
  spoil(&in_.v.data, p_.storage_of("v"), false);
  if ((p_.q_scale.one & 3U) == 0) spoil(&in_.q_scale.data, p_.storage_of("q_scale"), true);
  if (a_.k_scale_rows > 1)
    spoil_blocks();
  else if ((p_.k_scale.one & 3U) == 0)
    spoil(&in_.k_scale.data, p_.storage_of("k_scale"), false, 1, true);
  if ((p_.v_scale.one & 3U) == 0) spoil(&in_.v_scale.data, p_.storage_of("v_scale"), false, 1, true);
  spoil(&in_.k_new.data, p_.storage_of("k_new"), true);
  spoil(&in_.v_new.data, p_.storage_of("v_new"), true);
  each_input(*this, [&](const OperandField& of, Input& input) {
    if (&of == operand_named("sinks")) return fill_sinks(&input.data);
    if (of.shape == OperandField::head_numbers) fill_head_numbers(&input.data, of.name == std::string_view("alibi"));
  });
}

/// The usual slopes; of ALiBi also any numbers, some of them 0 or negative.
void AttentionInputs::fill_head_numbers(Contents* data, bool any_sign) const {
  const std::vector<float> usual = usual_slopes(a_.h_q);
  const bool any = any_sign && stream(8) % 4 == 0;
  data->change([&](auto b, auto, auto h, auto, float) {
    if (!any) return usual[static_cast<std::size_t>(h)] * static_cast<float>(b + 1);
    return static_cast<float>(static_cast<int>(random_bits(stream(9), static_cast<std::uint64_t>(b * 4099 + h)) % 17) -
                              8) /
           16;
  });
}

void AttentionInputs::write_table(std::byte* base) const {
  const Tensor to = in_.page_table.place.on(base);
  for (std::int64_t row = 0; row < table_.rows; ++row)
    for (std::int64_t column = 0; column < table_.columns; ++column)
      static_cast<std::int32_t*>(
          to.data)[(to.shape[0] > 1 ? row * to.stride[0] : 0) + (to.shape[1] > 1 ? column * to.stride[1] : 0)] =
          table_.entries[static_cast<std::size_t>(row * table_.columns + column)];
}

/// Sinks below, among and above the scores; one of 16 is -inf, which is none.
void AttentionInputs::fill_sinks(Contents* data) const {
  constexpr float kSpread[] = {1, 1, 4, 100};
  const float spread = kSpread[stream(12) % 4];
  data->change([&](auto b, auto, auto h, auto, float) {
    const std::uint64_t bits = random_bits(stream(13), static_cast<std::uint64_t>(b * 4099 + h));
    if (bits % 16 == 0) return -std::numeric_limits<float>::infinity();
    return spread * (static_cast<float>(bits / 16 % 4096) / 1024 - 2);
  });
}

void AttentionInputs::write(std::byte* base) const {
  each_input(*this, [&](const OperandField& of, const Input& input) {
    if (of.type != OperandField::i32) input.data.store(base, input.place);
  });
  if (a_.page_size > 0) write_table(base);
  const std::uint64_t rng[2] = {stream(10), stream(11)};
  if (p_.rng_in_memory) std::memcpy(base + rng_at_, rng, sizeof rng);
  each_array(*this, [&](const Array& array) {
    if (!array.data.empty()) std::memcpy(base + array.offset, array.data.data(), array.data.size() * 4);
  });
}

Operands AttentionInputs::operands(const std::byte* base) const {
  Operands x;
#define FALCHION_OPERAND(name, ...) x.name = in_.name.place.on(base);
#include "base/fields.def"
  const auto lengths = [&](const Array& array) { return reinterpret_cast<const std::int32_t*>(base + array.offset); };
  if (a_.packed) x.cu_seqlens_q = lengths(cu_q_);
  if (a_.packed && !a_.cache) x.cu_seqlens_k = lengths(cu_k_);
  if (!table_.starts.empty()) x.page_starts = lengths(starts_);
#define FALCHION_LENGTHS(key, ...) \
  if (a_.key) x.key = lengths(key##_);
#include "base/fields.def"
  x.rng = {p_.seed, p_.offset, nullptr, p_.origin};
  if (p_.rng_in_memory) x.rng.at = reinterpret_cast<const std::uint64_t*>(base + rng_at_);
  return x;
}

/// The judge rounds new keys to the type of the cache, so that stays as it is.
bool AttentionInputs::is_written(std::string_view name) const { return a_.append && (name == "k" || name == "v"); }

Operands AttentionInputs::reference_operands(const std::byte* base) const {
  Operands x = operands(base);
#define FALCHION_OPERAND(name, ...) \
  if (!in_.name.data.empty() && x.name.dtype != DType::boolean && !is_written(#name)) x.name = in_.name.data.view();
#include "base/fields.def"
  return x;
}

}  // namespace falchion::tools::storm
