// tools/verify/attention/inputs.cpp: see inputs.hpp.
#include "verify/attention/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "api/operand_list.hpp"
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

}  // namespace

AttentionInputs::AttentionInputs(const Problem& problem)
    : p_(problem),
      a_(problem.attention),
      q_rows_(a_.packed ? sum(p_.lengths_q) + p_.spare : a_.s_q),
      k_rows_(a_.packed ? sum(p_.lengths_k) + p_.spare : a_.s_k),
      batch_(a_.packed ? 1 : a_.b) {}

Contents::Shape AttentionInputs::scores(const Broadcast& broadcast) const {
  Contents::Shape shape{a_.b, a_.h_q, a_.s_q, a_.s_k};
  for (std::size_t axis = 0; axis < 4; ++axis)
    if ((broadcast.one >> axis & 1U) != 0) shape[axis] = 1;
  return shape;
}

unsigned AttentionInputs::ones_of(const OperandField& of) const {
  if (&of == operand_named("bias")) return p_.bias.one;
  if (&of == operand_named("mask")) return p_.mask.one;
  const bool by_batch = p_.slopes_by_batch && &of == operand_named("alibi");
  return of.shape == OperandField::head_numbers && !by_batch ? 1 : 0;
}

void AttentionInputs::lay_out(Image* image) {
  Operands rows;  // how many there are of packed sequences
  rows.q.shape[1] = q_rows_;
  rows.k.shape[1] = k_rows_;
  each_input(*this, [&](const OperandField& of, Input& input) {
    Contents::Shape shape = shape_of(a_, rows, of);
    for (std::size_t axis = 0; axis < 4; ++axis)
      if ((ones_of(of) >> axis & 1U) != 0) shape[axis] = 1;
    const bool f32 =
        of.type == OperandField::f32 || (of.type == OperandField::f32_or_same && p_.bias_dtype == DType::f32);
    const DType dtype = of.type == OperandField::boolean ? DType::boolean : f32 ? DType::f32 : a_.dtype;
    input.place = image->add(of.name, dtype, shape, p_.storage_of(of.name));
    input.data = Contents(dtype, shape, p_.storage_of(of.name).zero);
  });
  if (p_.rng_in_memory) rng_at_ = image->add_array("rng.at", 2 * sizeof(std::uint64_t));
  if (a_.packed) {
    cu_q_.data = cumulative(p_.lengths_q);
    cu_k_.data = cumulative(p_.lengths_k);
  }
#define FALCHION_LENGTHS(key, ...) \
  if (a_.key) key##_.data = as_int32(p_.key);
#include "base/fields.def"
  each_array(*this, [&](Array& array) { array.offset = image->add_array(array.name, array.data.size() * 4); });
}

void AttentionInputs::fill_scores() {
  in_.q.data.fill_normal(stream(1), p_.data.q);
  in_.k.data.fill_normal(stream(2), p_.data.k);
  in_.v.data.fill_normal(stream(3), p_.data.v);
  const auto sign = [&](std::int64_t d) { return (stream(100 + static_cast<std::uint64_t>(d)) & 1) != 0 ? 1.F : -1.F; };
  if (p_.data.shape == "zero") in_.q.data.change([](auto, auto, auto, auto, float) { return 0.F; });
  if (p_.data.shape == "equal")
    in_.k.data.change([&](auto i, auto, auto h, auto d, float) { return in_.k.data.get(i, 0, h, d); });
  if (p_.data.shape == "rising") {
    in_.q.data.change([&](auto, auto, auto, auto d, float x) { return sign(d) * std::abs(x); });
    const float step = 4 * p_.data.k / static_cast<float>(std::max<std::int64_t>(k_rows_, 1));
    in_.k.data.change([&](auto, auto j, auto, auto d, float) { return sign(d) * step * static_cast<float>(j); });
  }
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

void AttentionInputs::spoil(Contents* x, const Storage& storage, bool of_queries, std::size_t rows_axis) const {
  if ((storage.zero & (1U | 1U << rows_axis)) != 0) return;
  const std::int64_t rows = of_queries ? q_rows_ : k_rows_;
  std::vector<bool> belongs(static_cast<std::size_t>(batch_ * rows));
  const auto& lengths = of_queries ? p_.lengths_q : p_.lengths_k;
  const auto& used = of_queries ? p_.used_q : p_.used_k;
  std::int64_t begin = 0;
  for (std::int64_t b = 0; b < a_.b; ++b) {
    const auto at = static_cast<std::size_t>(b);
    const std::int64_t capacity = a_.packed ? lengths[at] : rows;
    const std::int64_t length = used.empty() ? capacity : std::clamp<std::int64_t>(used[at], 0, capacity);
    const bool padded = !of_queries && !p_.first_k.empty();
    const std::int64_t first = padded ? std::clamp<std::int64_t>(p_.first_k[at], 0, length) : 0;
    std::fill_n(belongs.begin() + (a_.packed ? begin : b * rows) + first, length - first, true);
    begin += capacity;
  }
  if (std::find(belongs.begin(), belongs.end(), false) == belongs.end()) return;
  x->change([&](auto i, auto j, auto k, auto, float value) {
    return belongs[static_cast<std::size_t>(i * rows + (rows_axis == 1 ? j : k))] ? value : kNan;
  });
}

void AttentionInputs::fill() {
  fill_scores();
  if (a_.bias) fill_bias();
  if (a_.mask) fill_mask();
  plant();
  spoil(&in_.q.data, p_.storage_of("q"), true);
  spoil(&in_.k.data, p_.storage_of("k"), false);
  spoil(&in_.v.data, p_.storage_of("v"), false);
  each_input(*this, [&](const OperandField& of, Input& input) {
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

void AttentionInputs::write(std::byte* base) const {
  each_input(*this, [&](const OperandField&, const Input& input) { input.data.store(base, input.place); });
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
  if (a_.packed) {
    x.cu_seqlens_q = lengths(cu_q_);
    x.cu_seqlens_k = lengths(cu_k_);
  }
#define FALCHION_LENGTHS(key, ...) \
  if (a_.key) x.key = lengths(key##_);
#include "base/fields.def"
  x.rng = {p_.seed, p_.offset, nullptr, p_.origin};
  if (p_.rng_in_memory) x.rng.at = reinterpret_cast<const std::uint64_t*>(base + rng_at_);
  return x;
}

Operands AttentionInputs::reference_operands(const std::byte* base) const {
  Operands x = operands(base);
#define FALCHION_OPERAND(name, ...) \
  if (in_.name.place.there && x.name.dtype != DType::boolean) x.name = in_.name.data.view();
#include "base/fields.def"
  return x;
}

}  // namespace falchion::tools::storm
