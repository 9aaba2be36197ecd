// src/gpu/blocks/tf32.cuh: products of f32 matrices on the tensor cores. Each operand is a sum of two TF32 numbers, a
// high and a low part. Three of the four products of these parts are computed; the fourth is 2^-20 of the first. A warp
// multiplies with mma.sync m16n8k8.
#pragma once

#include <cstdint>

#include <cute/tensor.hpp>

#include "base/host_device.hpp"

namespace falchion::gpu {

using namespace cute;

/// The fragment of a 16 x 8 matrix A or an 8 x 8 matrix B, with the high and the low part of each element. With g =
/// lane / 4 and t = lane % 4, a lane has these elements (row, column), and these of an accumulator C:
///   A: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)    B: (t, g), (t + 4, g)
///   C: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
template <int kSize>
struct Tf32 {
  std::uint32_t hi[kSize], lo[kSize];
};

/// Splits x into two parts: hi is x truncated to 10 bits of mantissa, and lo is the exact rest. The tensor core itself
/// then truncates lo, at 2^-21 of x.
template <class... Floats>
FALCHION_DEVICE auto split_tf32(Floats... x) {
  Tf32<sizeof...(x)> parts;
  const float all[] = {x...};
  CUTE_UNROLL
  for (int i = 0; i < static_cast<int>(sizeof...(x)); ++i) {
    parts.hi[i] = __float_as_uint(all[i]) & 0xFFFFE000;
    parts.lo[i] = __float_as_uint(all[i] - __uint_as_float(parts.hi[i]));
  }
  return parts;
}

FALCHION_DEVICE void mma_tf32(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Sets the accumulators of kN such products to 0.
template <int kN>
FALCHION_DEVICE void clear(float (&x)[kN][4]) {
  CUTE_UNROLL
  for (int n = 0; n < kN; ++n) {
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) x[n][i] = 0;
  }
}
/// Adds x to `to`.
template <int kN>
FALCHION_DEVICE void add(const float (&x)[kN][4], float (&to)[kN][4]) {
  CUTE_UNROLL
  for (int n = 0; n < kN; ++n) {
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) to[n][i] += x[n][i];
  }
}
FALCHION_DEVICE float2 pair(const float* at) { return *reinterpret_cast<const float2*>(at); }

/// Computes C[n] += A B[n] for n from kFrom on. An operand with kParts 1 is a TF32 number as it is and has no low part.
/// The loop over n is inside of the loop over pairs of parts, so that neighbouring instructions are independent. The
/// small products come first.
template <int kPartsA, int kPartsB, int kFrom = 0, int kN>
FALCHION_DEVICE void multiply_tf32(float (&c)[kN][4], const Tf32<4>& a, const Tf32<2> (&b)[kN]) {
  if constexpr (kPartsB == 2) {
    CUTE_UNROLL
    for (int n = kFrom; n < kN; ++n) mma_tf32(c[n], a.hi, b[n].lo);
  }
  if constexpr (kPartsA == 2) {
    CUTE_UNROLL
    for (int n = kFrom; n < kN; ++n) mma_tf32(c[n], a.lo, b[n].hi);
  }
  CUTE_UNROLL
  for (int n = kFrom; n < kN; ++n) mma_tf32(c[n], a.hi, b[n].hi);
}

}  // namespace falchion::gpu
