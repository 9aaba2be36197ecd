// tools/verify/attention/inputs.cpp: see inputs.hpp.
#include "verify/attention/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

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

void AttentionInputs::lay_out(Image* image) {
  const auto place = [&](const char* name, DType dtype, const Contents::Shape& shape, bool wanted = true) {
    return wanted ? image->add(name, dtype, shape, p_.storage_of(name)) : Image::Place{};
  };
  q_ = place("q", a_.dtype, {batch_, q_rows_, a_.h_q, a_.d_qk});
  k_ = place("k", a_.dtype, {batch_, k_rows_, a_.h_k, a_.d_qk});
  v_ = place("v", a_.dtype, {batch_, k_rows_, a_.h_k, a_.d_v});
  bias_place_ = place("bias", p_.bias_dtype == DType::f32 ? DType::f32 : a_.dtype, scores(p_.bias), a_.bias);
  mask_place_ = place("mask", DType::boolean, scores(p_.mask), a_.mask);
  alibi_place_ = place("alibi", DType::f32, {p_.slopes_by_batch ? a_.b : 1, 1, a_.h_q, 1}, a_.alibi);
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
  const auto contents = [&](const char* name, const Image::Place& place) {
    return Contents(place.view.dtype, place.view.shape, p_.storage_of(name).zero);
  };
  q_data_ = contents("q", q_);
  k_data_ = contents("k", k_);
  v_data_ = contents("v", v_);
  q_data_.fill_normal(stream(1), p_.data.q);
  k_data_.fill_normal(stream(2), p_.data.k);
  v_data_.fill_normal(stream(3), p_.data.v);
  const auto sign = [&](std::int64_t d) { return (stream(100 + static_cast<std::uint64_t>(d)) & 1) != 0 ? 1.F : -1.F; };
  if (p_.data.shape == "zero") q_data_.change([](auto, auto, auto, auto, float) { return 0.F; });
  if (p_.data.shape == "equal")
    k_data_.change([&](auto i, auto, auto h, auto d, float) { return k_data_.get(i, 0, h, d); });
  if (p_.data.shape == "rising") {
    q_data_.change([&](auto, auto, auto, auto d, float x) { return sign(d) * std::abs(x); });
    const float step = 4 * p_.data.k / static_cast<float>(std::max<std::int64_t>(k_rows_, 1));
    k_data_.change([&](auto, auto j, auto, auto d, float) { return sign(d) * step * static_cast<float>(j); });
  }
}

void AttentionInputs::fill_bias() {
  bias_data_ = Contents(bias_place_.view.dtype, bias_place_.view.shape, p_.storage_of("bias").zero);
  bias_data_.fill_normal(stream(4), 1);
  const std::string& kind = p_.data.bias;
  if (kind == "normal") return;
  bias_data_.change([&](auto b, auto h, auto i, auto j, float x) {
    const auto row = static_cast<std::uint64_t>((b * 131 + h) * 4099 + i);
    const std::uint64_t of_row = random_bits(stream(5), row), own = random_bits(of_row, static_cast<std::uint64_t>(j));
    if (kind == "masks") return own % 8 == 0 ? -kInf : x;
    if (kind == "rows") return of_row % 4 == 0 ? -kInf : x;
    const float low = kind == "mild" ? -1e4F : -1e9F;
    return of_row % 2 == 0 || own % 2 == 0 ? x + low : x;
  });
}

void AttentionInputs::fill_mask() {
  mask_data_ = Contents(DType::boolean, mask_place_.view.shape, p_.storage_of("mask").zero);
  const std::string& kind = p_.data.mask;
  mask_data_.change([&](auto b, auto h, auto i, auto j, float) {
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
    Contents* to = name == "q" ? &q_data_ : name == "k" ? &k_data_ : name == "v" ? &v_data_ : nullptr;
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
  spoil(&q_data_, p_.storage_of("q"), true);
  spoil(&k_data_, p_.storage_of("k"), false);
  spoil(&v_data_, p_.storage_of("v"), false);
  if (a_.alibi) fill_slopes();
}

/// The usual slopes, or any numbers, some of them 0 or negative.
void AttentionInputs::fill_slopes() {
  alibi_data_ = Contents(DType::f32, alibi_place_.view.shape, p_.storage_of("alibi").zero);
  const std::vector<float> usual = usual_slopes(a_.h_q);
  const bool any = stream(8) % 4 == 0;
  alibi_data_.change([&](auto b, auto, auto h, auto, float) {
    if (!any) return usual[static_cast<std::size_t>(h)] * static_cast<float>(b + 1);
    return static_cast<float>(static_cast<int>(random_bits(stream(9), static_cast<std::uint64_t>(b * 4099 + h)) % 17) -
                              8) /
           16;
  });
}

void AttentionInputs::write(std::byte* base) const {
  q_data_.store(base, q_);
  k_data_.store(base, k_);
  v_data_.store(base, v_);
  if (a_.bias) bias_data_.store(base, bias_place_);
  if (a_.mask) mask_data_.store(base, mask_place_);
  if (a_.alibi) alibi_data_.store(base, alibi_place_);
  const std::uint64_t rng[2] = {stream(10), stream(11)};
  if (p_.rng_in_memory) std::memcpy(base + rng_at_, rng, sizeof rng);
  each_array(*this, [&](const Array& array) {
    if (!array.data.empty()) std::memcpy(base + array.offset, array.data.data(), array.data.size() * 4);
  });
}

Operands AttentionInputs::operands(const std::byte* base) const {
  Operands x;
  x.q = q_.on(base);
  x.k = k_.on(base);
  x.v = v_.on(base);
  x.bias = bias_place_.on(base);
  x.mask = mask_place_.on(base);
  const auto lengths = [&](const Array& array) { return reinterpret_cast<const std::int32_t*>(base + array.offset); };
  x.alibi = alibi_place_.on(base);
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
  x.q = q_data_.view();
  x.k = k_data_.view();
  x.v = v_data_.view();
  if (a_.bias) x.bias = bias_data_.view();
  if (a_.alibi) x.alibi = alibi_data_.view();
  return x;
}

}  // namespace falchion::tools::storm
