// src/sm80/linear_attention/f16_range.cuh: keeps numbers within the range of f16, which ends at 65504, while the f32
// sums of linear attention exceed it. It chooses powers of two that scale P and S down before they become f16. bf16 has
// the range of f32, so for bf16 these factors are 1.
#pragma once

#include "base/host_device.hpp"
#include "sm80/linear_attention/piece.cuh"

namespace falchion::sm80 {

/// The factor for P: the power of two in the scale, but at most 1. O is multiplied by the scale at the end, so a result
/// below 65504 may be above it before.
template <class Element>
FALCHION_DEVICE float down_for(float scale) {
  if constexpr (!std::is_same_v<Element, f16>) return 1;
  return fminf(__uint_as_float(__float_as_uint(scale) & 0x7F800000), 1.f);
}

/// Returns the largest seen(|x|) over all elements x of a warp, ignoring NaN.
template <class Seen, class... States>
FALCHION_DEVICE float largest_of_warp(Seen seen, const States&... states) {
  float most = 0;
  const auto look_at = [&](const auto& state) {
    CUTE_UNROLL
    for (int i = 0; i < size(state); ++i) most = fmaxf(most, seen(fabsf(state(i))));
  };
  (look_at(states), ...);
  for (int lane = 16; lane > 0; lane /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, lane));
  return most;
}

/// The factor for S, and for z if it is given: the power of two that brings all finite numbers in the rows of a warp
/// below 2^12. Inf stays Inf and must not count, because it belongs to one column of v and would make all others 0. The
/// maximum is computed again without Inf only if the first one is Inf.
template <class Element, class... States>
FALCHION_DEVICE float shrink_for(const States&... states) {
  if constexpr (!std::is_same_v<Element, f16>) return 1;
  float most = largest_of_warp([](float x) { return x; }, states...);
  if (most == FALCHION_INF) most = largest_of_warp([](float x) { return x < FALCHION_INF ? x : 0.f; }, states...);
  const int exponent = min(max(static_cast<int>(__float_as_uint(most) >> 23) - 127 - 11, 0), 100);
  return __uint_as_float(static_cast<unsigned>(127 - exponent) << 23);
}

}  // namespace falchion::sm80
