// src/blocks/sm90_halves.cuh: f32 taken apart into two f16: x 2^n = high + low, low what rounding has left, which keeps
// 23 bits of x where n brings the largest of its kind just below 2^15; their products.
#pragma once

#include <cstdint>

#include "blocks/sm90_tma.cuh"
#include "blocks/sm90_wgmma.cuh"

namespace falchion::sm90 {

/// n from -126 to 127.
__device__ __forceinline__ float power_of_two(int n) { return __int_as_float((n + 127) << 23); }
/// In double, n from -1022 to 1023.
__device__ __forceinline__ double wide_power_of_two(int n) { return __hiloint2double((n + 1023) << 20, 0); }
/// scale 2^n as two factors: one may be 0 or infinite where its product with x is neither. What comes out of a tensor
/// core here is 0 or 2^-48 to 2^50, so that beyond 2^200 nothing but 0 or Inf is left of it (or, where S has grown
/// since, what is below 2^-39 of what it may become). of(1) is 0 below 2^-149.
struct TwoFactors {
  float first, second;
  TwoFactors() = default;
  __device__ __forceinline__ explicit TwoFactors(int n, float scale = 1) {
    n = min(max(n, -200), 200);
    first = power_of_two(n / 2) * scale, second = power_of_two(n - n / 2);
  }
  __device__ __forceinline__ float of(float x) const { return x * first * second; }
};
/// Two floats rounded to f16; x and y become what is left of them.
__device__ __forceinline__ std::uint32_t round_half(float& x, float& y) {
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
  x -= high_x, y -= high_y;
  return pair;
}

/// Four columns times `scale`, to each of the two; x is lost.
template <class Half>
__device__ __forceinline__ void split_four(float* x, float scale, Half* high, Half* low) {
  CUTE_UNROLL
  for (int c = 0; c < 4; ++c) x[c] *= scale;
  CUTE_UNROLL
  for (Half* const to : {high, low}) *reinterpret_cast<uint2*>(to) = {round_half(x[0], x[1]), round_half(x[2], x[3])};
}

/// Lane 0 alone reads: it is the one that later says on a barrier that its warp has.
__device__ __forceinline__ int read_by_warp(const int& x) { return __shfl_sync(~0u, threadIdx.x % 32 == 0 ? x : 0, 0); }

/// Bits of the largest of the finite |x| of a warp.
template <int kSize>
__device__ __forceinline__ unsigned largest_of_warp(const float* x) {
  float most[4] = {};  // side by side: each waits for the one before it
  CUTE_UNROLL
  for (int i = 0; i < kSize; ++i)  // Inf becomes NaN, which fmaxf passes over
    most[i % 4] = fmaxf(most[i % 4], fabsf(fmaf(x[i], 0.f, x[i])));
  return __reduce_max_sync(~0u, __float_as_uint(fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]))));
}
/// And of kWarps warps. barrier: their own; `largest` must not be the one of the call before.
template <int kSize, int kWarps>
__device__ __forceinline__ unsigned largest_of_warps(const float* x, unsigned* largest, int barrier) {
  unsigned most = largest_of_warp<kSize>(x);
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32 % kWarps] = most;
  sync_threads<32 * kWarps>(barrier);
  CUTE_UNROLL
  for (int i = 0; i < kWarps; ++i) most = max(most, largest[i]);
  return most;
}
/// n of the power of two that brings it below 2^15, at least 2^14.
__device__ __forceinline__ int exponent_for(unsigned largest) {
  return min(14 + 127 - static_cast<int>(largest >> 23), 126);
}

/// C = A B (kClear) or C += A B; a(i), b(i): high and low. kBatchesOfHalves batches.
constexpr int kBatchesOfHalves = 3;
template <bool kClear, class Mma, class A, class B, class C>
__device__ __forceinline__ void start_multiply_halves(Mma mma, A a, B b, C& c) {
  start_multiply<kClear>(mma, a(1), b(0), c);
  start_multiply<false>(mma, a(0), b(1), c);
  start_multiply<false>(mma, a(0), b(0), c);
}
/// Until here: a product that runs still reads operand A, of which the compiler knows nothing, from its registers.
template <class Terms>
__device__ __forceinline__ void keep_terms(Terms& terms) {
  for (auto& term : terms) warpgroup_fence_operand(term);
}

}  // namespace falchion::sm90
