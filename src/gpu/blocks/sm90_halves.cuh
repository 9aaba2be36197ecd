// src/gpu/blocks/sm90_halves.cuh: f32 numbers split into two f16 numbers, and products of such numbers. x 2^n = high +
// low, where low is the rounding error of high. Both together keep 23 bits of x if n brings the largest number of its
// group just below 2^15. docs/design/linear_attention.md, "f32 on Hopper: a high and a low part", describes it.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tma.cuh"
#include "gpu/blocks/sm90_wgmma.cuh"

namespace falchion::sm90 {

/// 2^n, for n from -126 to 127.
FALCHION_DEVICE float power_of_two(int n) { return __int_as_float((n + 127) << 23); }
/// 2^n as a double, for n from -1022 to 1023.
FALCHION_DEVICE double wide_power_of_two(int n) { return __hiloint2double((n + 1023) << 20, 0); }
/// The factor scale 2^n, kept as two factors, because scale 2^n alone may be 0 or infinite where its product with x is
/// neither. n is clamped to -200 .. 200: results of a tensor core are 0 or between 2^-48 and 2^50 here, so a factor
/// beyond 2^200 or 2^-200 turns them into Inf or 0 anyway (or, where S has grown since, into something below 2^-39 of
/// the bound of S). of(1) is 0 where the factor is below 2^-149.
struct TwoFactors {
  float first, second;
  TwoFactors() = default;
  FALCHION_DEVICE explicit TwoFactors(int n, float scale = 1) {
    n = min(max(n, -200), 200);
    first = power_of_two(n / 2) * scale;
    second = power_of_two(n - n / 2);
  }
  FALCHION_DEVICE float of(float x) const { return x * first * second; }
};
/// Returns x and y rounded to f16, x in the lower 16 bits. x and y become their rounding errors.
FALCHION_DEVICE std::uint32_t round_half(float& x, float& y) {
  std::uint32_t pair;
  float high_x, high_y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.f32.f16 %0, low;\n"
      "cvt.f32.f16 %1, high;\n"
      "}\n"
      : "=f"(high_x), "=f"(high_y)
      : "r"(pair));
  x -= high_x;
  y -= high_y;
  return pair;
}

/// Multiplies four columns by `scale`, splits them, and stores the high parts to `high` and the low ones to `low`. x is
/// overwritten.
template <class Half>
FALCHION_DEVICE void split_four(float* x, float scale, Half* high, Half* low) {
  CUTE_UNROLL
  for (int c = 0; c < 4; ++c) x[c] *= scale;
  CUTE_UNROLL
  for (Half* const to : {high, low}) *reinterpret_cast<uint2*>(to) = {round_half(x[0], x[1]), round_half(x[2], x[3])};
}

/// Returns x to all lanes of a warp. Only lane 0 reads it, because lane 0 later arrives on the barrier for the warp.
FALCHION_DEVICE int read_by_warp(const int& x) { return __shfl_sync(~0u, threadIdx.x % 32 == 0 ? x : 0, 0); }

/// The bits of the largest finite |x| of a warp, whose lanes have kSize numbers each.
template <int kSize>
FALCHION_DEVICE unsigned largest_of_warp(const float* x) {
  float most[4] = {};  // four independent chains of maxima, to shorten the dependency
  CUTE_UNROLL
  for (int i = 0; i < kSize; ++i)  // x * 0 + x makes Inf a NaN, and fmaxf ignores NaN
    most[i % 4] = fmaxf(most[i % 4], fabsf(fmaf(x[i], 0.f, x[i])));
  return __reduce_max_sync(~0u, __float_as_uint(fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]))));
}
/// The same for kWarps warps together, which synchronise at the given named barrier. `largest`, in shared memory, must
/// not be the one of the previous call, from which some warps may still read.
template <int kSize, int kWarps>
FALCHION_DEVICE unsigned largest_of_warps(const float* x, unsigned* largest, int barrier) {
  unsigned most = largest_of_warp<kSize>(x);
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32 % kWarps] = most;
  sync_threads<32 * kWarps>(barrier);
  CUTE_UNROLL
  for (int i = 0; i < kWarps; ++i) most = max(most, largest[i]);
  return most;
}
/// The n for which `largest` (the bits of a number) times 2^n is below 2^15 and at least 2^14; it is 126 at most.
FALCHION_DEVICE int exponent_for(unsigned largest) { return min(14 + 127 - static_cast<int>(largest >> 23), 126); }

/// Starts C = A B (kClear) or C += A B, where a(0) and b(0) are the high parts and a(1) and b(1) the low ones. Low
/// times low is left out. It commits kBatchesOfHalves batches, the small products first.
constexpr int kBatchesOfHalves = 3;
template <bool kClear, class Mma, class A, class B, class C>
FALCHION_DEVICE void start_multiply_halves(Mma mma, A a, B b, C& c) {
  start_multiply<kClear>(mma, a(1), b(0), c);
  start_multiply<false>(mma, a(0), b(1), c);
  start_multiply<false>(mma, a(0), b(0), c);
}
/// Keeps operand A in its registers up to this point. A running product still reads it from there, which the compiler
/// does not know.
template <class Terms>
FALCHION_DEVICE void keep_terms(Terms& terms) {
  for (auto& term : terms) warpgroup_fence_operand(term);
}

}  // namespace falchion::sm90
