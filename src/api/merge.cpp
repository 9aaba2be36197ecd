// src/api/merge.cpp: two partial results over disjoint keys -> one. The formula is FlashDecoding's:
// lse = log(e^lse_a + e^lse_b), o = e^(lse_a - lse) o_a + e^(lse_b - lse) o_b.
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "api/check.hpp"
#include "api/operand_checks.hpp"
#include "api/overlap.hpp"
#include "api/run.hpp"
#include "cuda/place.hpp"
#include "falchion/falchion.hpp"
#include "plan/text.hpp"
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

/// A tensor of o's kind, or an lse, f32. shape: what it is to be; of: whose shape says so.
void check_tensor(const char* name, const Tensor& x, bool output, bool is_lse, const Shape& shape, const char* of,
                  Check* check) {
  const bool half = x.dtype == DType::f16 || x.dtype == DType::bf16;
  check->require(x.dtype == DType::f32 || (half && !is_lse), name, ".dtype = ", x.dtype,
                 is_lse ? ": it must be f32" : ": it must be f32, f16 or bf16");
  for (const std::int64_t extent : x.shape)
    check->require(extent >= 0, name, ".shape = ", x.shape, ": an extent must be 0 or more");
  check->require(x.shape == shape, name, ".shape = ", x.shape, ", ", of, " is ", shape);
  if (check->ok()) check_memory({.name = name, .x = &x, .output = output}, check);
}

/// Each row is read before it is written, so an output may be an input; but not overlap it otherwise.
void check_overlap(const char* out_name, const Tensor& out, const char* name, const Tensor& x, Check* check) {
  check->require(same_view(out, x) || !overlap(out, x), out_name, " overlaps ", name, " without being it");
}
void check_apart(const char* out_name, const Tensor& out, const char* name, const Tensor& x, Check* check) {
  check->require(!overlap(out, x), out_name, " overlaps ", name);
}

/// merge computes on the host.
Status check_place(const Operand& tensor) {
  const cuda::Place place = cuda::place_of(data_of(*tensor.x));
  if (cuda::host_can_use(place)) return {};
  if (place == cuda::Place::unknown) return unknown_place(tensor.name, "merge");
  return {Code::invalid, text(tensor.name, " lies on a GPU: merge takes tensors in host memory")};
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
  const Shape rows{o.shape[0], o.shape[2], o.shape[1], 1};  // o is (b, s, h, d), lse (b, h, s, 1)
  check_tensor("o", o, true, false, o.shape, "o", &check);
  check.require(o.shape[3] >= 1, "o.shape[3] = ", o.shape[3], ": a head dim must be 1 or more");
  check_tensor("lse", lse, true, true, rows, "(b, h, s_q, 1) of o", &check);
  check_tensor("o_a", o_a, false, false, o.shape, "o", &check);
  check_tensor("lse_a", lse_a, false, true, rows, "(b, h, s_q, 1) of o", &check);
  check_tensor("o_b", o_b, false, false, o.shape, "o", &check);
  check_tensor("lse_b", lse_b, false, true, rows, "(b, h, s_q, 1) of o", &check);
  if (!check.ok()) return check.take();
  check_overlap("o", o, "o_a", o_a, &check), check_overlap("o", o, "o_b", o_b, &check);
  check_overlap("lse", lse, "lse_a", lse_a, &check), check_overlap("lse", lse, "lse_b", lse_b, &check);
  check_apart("o", o, "lse_a", lse_a, &check), check_apart("o", o, "lse_b", lse_b, &check);
  check_apart("o", o, "lse", lse, &check);
  check_apart("lse", lse, "o_a", o_a, &check), check_apart("lse", lse, "o_b", o_b, &check);
  if (!check.ok()) return check.take();
  const Operand tensors[] = {{.name = "o_a", .x = &o_a}, {.name = "lse_a", .x = &lse_a},
                             {.name = "o_b", .x = &o_b}, {.name = "lse_b", .x = &lse_b},
                             {.name = "o", .x = &o},     {.name = "lse", .x = &lse}};
  for (const Operand& tensor : tensors) {
    if (Status status = check_place(tensor); !status) return status;
  }
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
