// src/api/sizes.hpp: the limits of every problem's sizes, and the messages for sizes over them.
#pragma once

#include <cstdint>
#include <limits>

#include "api/check.hpp"
#include "base/size.hpp"

namespace falchion {

inline constexpr std::int64_t kMaxHeadDim = 256;
// Kernels hold a row's index in 32 bits, rounded up to tiles.
inline constexpr std::int64_t kMaxSequence = std::int64_t{1} << 30;
// b * h is a 32-bit number: a counter of Philox, a grid.
inline constexpr std::int64_t kMaxHeads = std::numeric_limits<std::int32_t>::max();
inline constexpr int kMaxSms = std::numeric_limits<std::uint16_t>::max();  // C's field has 16 bits

inline void check_size(const char* name, std::int64_t value, std::int64_t limit, Check* check) {
  check->require(value >= 0, name, " = ", value, ": a size must be 0 or more");
  check->require(value <= limit, name, " = ", value, " is over the limit of ", limit);
}

inline void check_head_dim(const char* name, std::int64_t value, Check* check) {
  check->require(value >= 1, name, " = ", value, ": a head dim must be 1 to ", kMaxHeadDim);
  check->supported(value <= kMaxHeadDim, name, " = ", value, " is over the limit of ", kMaxHeadDim);
}

inline void check_pass(Pass pass, Check* check) {
  check->require(pass <= Pass::backward, "pass = ", static_cast<int>(pass), " is no Pass");
}

/// The type of an operand that is not q's, where it has one of its own.
inline void check_own_dtype(const char* name, DType dtype, DType of_q, bool may_be_bytes, Check* check) {
  check->require(dtype <= kLastDType, name, " = ", static_cast<int>(dtype), " is no DType");
  check->require(dtype != DType::boolean, name, " = boolean: q, k, v, o are numbers");
  check->supported(dtype == DType::as_q || dtype == of_q || (may_be_bytes && is_8bit(dtype)), name, " = ", dtype,
                   " with dtype = ", of_q, ": operands of different types are not built yet; nearest: as_q");
}

/// The types of q, k, v and o.
template <class Problem>
void check_dtypes(const Problem& a, Check* check) {
  check->require(a.dtype <= kLastDType, "dtype = ", static_cast<int>(a.dtype), " is no DType");
  check->require(a.dtype != DType::as_q, "dtype = as_q (0): the type of q is unset; it must be f32, f16 or bf16");
  check->require(a.dtype != DType::boolean, "dtype = boolean: q, k, v are f32, f16 or bf16");
  if (!check->ok()) return;
  bool cache = false;
  if constexpr (requires { a.cache; }) cache = a.cache;
  check_own_dtype("dtype_k", a.dtype_k, a.dtype, cache, check);
  check_own_dtype("dtype_v", a.dtype_v, a.dtype, cache, check);
  check_own_dtype("dtype_o", a.dtype_o, a.dtype, false, check);
  const bool built = a.dtype == DType::f32 || a.dtype == DType::f16 || a.dtype == DType::bf16;
  check->supported(built, "dtype = ", a.dtype, " is not built yet; nearest: f16, bf16");
}

/// The problem with the types of its operands in normal form: a type that equals the default is as_q.
inline Gemm with_plain_dtypes(Gemm a) {
  const DType of_d = a.dtype_d == DType::as_q ? a.dtype : a.dtype_d;
  if (a.dtype_c == of_d) a.dtype_c = DType::as_q;
  for (DType* own : {&a.dtype_b, &a.dtype_d}) {
    if (*own == a.dtype) *own = DType::as_q;
  }
  return a;
}
inline Norm with_plain_dtypes(Norm a) {
  for (DType* own : {&a.dtype_y, &a.dtype_residual}) {
    if (*own == a.dtype) *own = DType::as_q;
  }
  return a;
}
template <class Problem>
Problem with_plain_dtypes(Problem a) {
  for (DType* own : {&a.dtype_k, &a.dtype_v, &a.dtype_o}) {
    if (*own == a.dtype) *own = DType::as_q;
  }
  return a;
}

}  // namespace falchion
