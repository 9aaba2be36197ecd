// src/sm80/linear_attention_f16_range.cuh: f16 ends at 65504, what linear attention sums in f32 does not: the powers of
// two that P and S are made smaller by before they become f16. bf16 has f32's range, there they are 1.
#pragma once

#include "sm80/linear_attention_piece.cuh"

namespace falchion::sm80 {

/// Of P: the power of two in the scale, for what is multiplied by that in the end may well pass 65504 before.
template <class Element>
__device__ __forceinline__ float down_for(float scale) {
  if constexpr (!std::is_same_v<Element, f16>) return 1;
  return fminf(__uint_as_float(__float_as_uint(scale) & 0x7F800000), 1.f);
}

/// The largest seen(|x|) of a warp. NaN is none.
template <class Seen, class... States>
__device__ __forceinline__ float largest_of_warp(Seen seen, const States&... states) {
  float most = 0;
  const auto look_at = [&](const auto& state) {
    CUTE_UNROLL
    for (int i = 0; i < size(state); ++i) most = fmaxf(most, seen(fabsf(state(i))));
  };
  (look_at(states), ...);
  for (int lane = 16; lane > 0; lane /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, lane));
  return most;
}

/// Of S, and z if it is given: what brings all that is finite in a warp's rows below 2^12. Inf stays Inf and must not
/// count: it belongs to one column of v, and the others would become 0. It is left out where the first maximum shows
/// it.
template <class Element, class... States>
__device__ __forceinline__ float shrink_for(const States&... states) {
  if constexpr (!std::is_same_v<Element, f16>) return 1;
  float most = largest_of_warp([](float x) { return x; }, states...);
  if (most == FALCHION_INF) most = largest_of_warp([](float x) { return x < FALCHION_INF ? x : 0.f; }, states...);
  const int exponent = min(max(static_cast<int>(__float_as_uint(most) >> 23) - 127 - 11, 0), 100);
  return __uint_as_float(static_cast<unsigned>(127 - exponent) << 23);
}

}  // namespace falchion::sm80
