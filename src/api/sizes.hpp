// src/api/sizes.hpp: the limits of every problem's sizes, and the messages for sizes over them.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "api/check.hpp"
#include "base/fields.hpp"
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

/// The types of k, v and o beside q of 8 bits.
inline void check_dtypes_of_bytes(const Attention& a, Check* check) {
  const DType v = dtype_of_v(a);
  const bool i8 = a.dtype == DType::i8, v_of_bytes = v == DType::e4m3;
  check->supported(i8 || a.dtype == DType::e4m3, "dtype = ", a.dtype, " is not built yet; nearest: e4m3");
  for (const auto& [name, dtype] : {std::pair{"dtype_k", a.dtype_k}, {"dtype_v", a.dtype_v}, {"dtype_o", a.dtype_o}})
    check->require(dtype <= kLastDType, name, " = ", static_cast<int>(dtype), " is no DType");
  if (!check->ok()) return;
  check->supported(dtype_of_k(a) == a.dtype, "dtype_k = ", a.dtype_k, " with dtype = ", a.dtype,
                   ": k has the type of q of 8 bits; nearest: as_q");
  check->supported(v_of_bytes || (i8 && (v == DType::bf16 || v == DType::f16)), "dtype_v = ", a.dtype_v,
                   " with dtype = ", a.dtype,
                   i8 ? ": v must be e4m3, bf16 or f16; nearest: e4m3" : ": v must be e4m3 too; nearest: as_q");
  const DType o = a.dtype_o;
  const bool o_fits = o == DType::as_q || o == v || (v_of_bytes && (o == DType::bf16 || o == DType::f16));
  check->supported(
      o_fits && !is_8bit(o), "dtype_o = ", o, " with dtype_v = ", v,
      v_of_bytes ? ": o must be bf16 or f16; nearest: bf16" : ": o has the type of v of 16 bits; nearest: that one");
}

/// The types of q, k, v and o.
template <class Problem>
void check_dtypes(const Problem& a, Check* check) {
  check->require(a.dtype <= kLastDType, "dtype = ", static_cast<int>(a.dtype), " is no DType");
  check->require(a.dtype != DType::as_q, "dtype = as_q (0): the type of q is unset; it must be f32, f16 or bf16");
  check->require(a.dtype != DType::boolean, "dtype = boolean: q, k, v are f32, f16 or bf16");
  if (!check->ok()) return;
  if constexpr (std::is_same_v<Problem, Attention>)
    if (is_8bit(a.dtype)) return check_dtypes_of_bytes(a, check);
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
inline Attention with_plain_dtypes(Attention a) {
  for (DType* own : {&a.dtype_k, &a.dtype_v}) {
    if (*own == a.dtype) *own = DType::as_q;
  }
  Attention plain = a;
  plain.dtype_o = DType::as_q;
  return dtype_of_o(plain) == a.dtype_o ? plain : a;
}
inline Quantise with_plain_dtypes(const Quantise& a) { return a; }
template <class Problem>
Problem with_plain_dtypes(Problem a) {
  for (DType* own : {&a.dtype_k, &a.dtype_v, &a.dtype_o}) {
    if (*own == a.dtype) *own = DType::as_q;
  }
  return a;
}

}  // namespace falchion
