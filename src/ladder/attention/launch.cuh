// src/ladder/attention/launch.cuh: what the GPU steps of attention begin with: the head dim as a constant.
#pragma once

#include <type_traits>

#include "ladder/attention/step.hpp"
#include "ladder/launch.cuh"

namespace falchion::ladder::on_gpu {

/// Calls f(integral_constant<int, d>), because tiles need their sizes at compile time.
template <class F>
Status with_head_dim(const Problem& p, const F& f) {
  if (p.d == 64) return f(std::integral_constant<int, 64>{});
  if (p.d == 128) return f(std::integral_constant<int, 128>{});
  return {Code::unsupported, "the ladder has head dims 64 and 128, not " + std::to_string(p.d)};
}

/// exp(s - m), and 0 where no key has been seen, because -inf - -inf is NaN.
__device__ inline float weight(float s, float m) { return s == -INFINITY ? 0 : expf(s - m); }

}  // namespace falchion::ladder::on_gpu
