// src/api/merge.cpp: two partial results over disjoint keys -> one. The formula is FlashDecoding's:
// lse = log(e^lse_a + e^lse_b), o = e^(lse_a - lse) o_a + e^(lse_b - lse) o_b.
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "api/check.hpp"
#include "api/overlap.hpp"
#include "falchion/falchion.hpp"
#include "policy/dtype.hpp"

namespace falchion {
namespace {

double load(const Tensor& x, std::int64_t offset) {
  if (x.dtype == DType::f32) return static_cast<const float*>(x.data)[offset];
  const std::uint16_t half = static_cast<const std::uint16_t*>(x.data)[offset];
  return x.dtype == DType::f16 ? f32_from_f16(half) : f32_from_bf16(half);
}
void store(const Tensor& x, std::int64_t offset, double value) {
  const float single = static_cast<float>(value);
  if (x.dtype == DType::f32) static_cast<float*>(x.data)[offset] = single;
  if (x.dtype == DType::f16) static_cast<std::uint16_t*>(x.data)[offset] = f16_from_f32(single);
  if (x.dtype == DType::bf16) static_cast<std::uint16_t*>(x.data)[offset] = bf16_from_f32(single);
}
std::int64_t at(const Tensor& x, std::int64_t i, std::int64_t j, std::int64_t k) {
  return i * x.stride[0] + j * x.stride[1] + k * x.stride[2];
}

void check_tensor(const char* name, const Tensor& x, bool output, bool is_lse, Check* check) {
  const bool half = x.dtype == DType::f16 || x.dtype == DType::bf16;
  check->require(x.dtype == DType::f32 || (half && !is_lse), name, ".dtype = ", falchion::name(x.dtype),
                 is_lse ? ": it is f32" : ": it is f32, f16 or bf16");
  bool empty = false;
  for (const std::int64_t extent : x.shape) {
    check->require(extent >= 0, name, ": an extent is ", extent);
    empty = empty || extent == 0;
  }
  if (!check->ok() || empty) return;
  check->require(x.data != nullptr, name, ".data is null");
  check->require(reinterpret_cast<std::uintptr_t>(x.data) % static_cast<std::uintptr_t>(size_of(x.dtype)) == 0, name,
                 ".data is not aligned to its elements");
  bool sane = check->require(fits_address_space(x), name, ": shape x stride overflows 64 bits");
  for (std::size_t axis = 0; axis < 4 && output; ++axis) {
    sane = check->require(x.shape[axis] <= 1 || x.stride[axis] > 0, name, ": strides of an output are above 0") && sane;
  }
  if (sane && output) check->require(!aliases_itself(x), name, ": its strides let two elements share memory");
}

bool same_view(const Tensor& a, const Tensor& b) {
  return a.data == b.data && a.dtype == b.dtype && a.shape == b.shape && a.stride == b.stride;
}

/// Each row is read before it is written, so an output may be an input; but not overlap it otherwise.
void check_overlap(const char* out_name, const Tensor& out, const char* name, const Tensor& x, Check* check) {
  check->require(same_view(out, x) || !overlap(out, x), out_name, " overlaps ", name, " without being it");
}

void check_lse(const char* name, const Tensor& lse, Check* check) {
  for (std::int64_t b = 0; b < lse.shape[0]; ++b) {
    for (std::int64_t h = 0; h < lse.shape[1]; ++h) {
      for (std::int64_t i = 0; i < lse.shape[2]; ++i) {
        const double x = load(lse, at(lse, b, h, i));
        check->require(x < std::numeric_limits<double>::infinity(), name, "[", b, ", ", h, ", ", i, "] = ", x,
                       ": neither NaN nor +inf is the lse of a state");
      }
    }
  }
}

void merge_row(const Tensor& o_a, const Tensor& lse_a, const Tensor& o_b, const Tensor& lse_b, const Tensor& o,
               const Tensor& lse, std::int64_t b, std::int64_t h, std::int64_t i) {
  const double a_lse = load(lse_a, at(lse_a, b, h, i)), b_lse = load(lse_b, at(lse_b, b, h, i));
  // The larger one's weight is exactly 1 whichever side it stands on: merging is commutative to the bit.
  const bool swap = b_lse > a_lse;
  const Tensor &x = swap ? o_b : o_a, &y = swap ? o_a : o_b;
  const double high = swap ? b_lse : a_lse, low = swap ? a_lse : b_lse;
  const bool empty = high == -std::numeric_limits<double>::infinity();
  const double weight = empty ? 0 : std::exp(low - high), sum = 1 + weight;
  const std::int64_t from_x = at(x, b, i, h), from_y = at(y, b, i, h), to = at(o, b, i, h);
  for (std::int64_t d = 0; d < o.shape[3]; ++d) {
    double value = empty ? 0 : load(x, from_x + d * x.stride[3]);
    if (weight > 0)
      value += weight * load(y, from_y + d * y.stride[3]);  // an empty state weighs nothing, whatever it holds
    store(o, to + d * o.stride[3], value / sum);
  }
  store(lse, at(lse, b, h, i), empty ? high : high + std::log(sum));
}

Status merge_checked(const Tensor& o_a, const Tensor& lse_a, const Tensor& o_b, const Tensor& lse_b, const Tensor& o,
                     const Tensor& lse) {
  Check check;
  check_tensor("o_a", o_a, false, false, &check), check_tensor("lse_a", lse_a, false, true, &check);
  check_tensor("o_b", o_b, false, false, &check), check_tensor("lse_b", lse_b, false, true, &check);
  check_tensor("o", o, true, false, &check), check_tensor("lse", lse, true, true, &check);
  check.require(o.shape[3] >= 1, "o.shape[3] = ", o.shape[3], ": a head dim is 1 or more");
  check.require(o_a.shape == o.shape && o_b.shape == o.shape, "o_a, o_b and o differ in shape");
  const std::array<std::int64_t, 4> rows{o.shape[0], o.shape[2], o.shape[1], 1};  // o is (b, s, h, d), lse (b, h, s, 1)
  check.require(lse_a.shape == rows && lse_b.shape == rows && lse.shape == rows,
                "lse_a, lse_b and lse are (b, h, s_q, 1) = (", rows[0], ", ", rows[1], ", ", rows[2], ", 1)");
  if (!check.ok()) return check.take();
  check_overlap("o", o, "o_a", o_a, &check), check_overlap("o", o, "o_b", o_b, &check);
  check_overlap("lse", lse, "lse_a", lse_a, &check), check_overlap("lse", lse, "lse_b", lse_b, &check);
  check.require(!overlap(o, lse_a) && !overlap(o, lse_b) && !overlap(o, lse), "o overlaps an lse");
  check.require(!overlap(lse, o_a) && !overlap(lse, o_b), "lse overlaps o_a or o_b");
  check_lse("lse_a", lse_a, &check), check_lse("lse_b", lse_b, &check);
  if (!check.ok()) return check.take();
  for (std::int64_t b = 0; b < o.shape[0]; ++b) {
    for (std::int64_t h = 0; h < o.shape[2]; ++h) {
      for (std::int64_t i = 0; i < o.shape[1]; ++i) merge_row(o_a, lse_a, o_b, lse_b, o, lse, b, h, i);
    }
  }
  return {};
}

}  // namespace

Status merge(const Tensor& o_a, const Tensor& lse_a, const Tensor& o_b, const Tensor& lse_b, const Tensor& o,
             const Tensor& lse) noexcept try {
  return merge_checked(o_a, lse_a, o_b, lse_b, o, lse);
} catch (...) { return caught(); }

}  // namespace falchion
