// src/sm80/linear_attention/forward.cuh: linear attention forward with 16-bit operands. It is one sweep over the
// tokens.
#pragma once

#include "gpu/linear_attention/sweep.cuh"
#include "sm80/linear_attention/kernel.cuh"
#include "sm80/linear_attention/launch.cuh"

namespace falchion::sm80 {

template <class Element, int kD, LinearKind kind>
constexpr gpu::LinearAttentionKernel linear_attention_forward() {
  using Config = LinearAttentionConfig<Element, kD, kind>;
  return linear_attention_kernel_of<Config>(
      [](const LinearAttentionArgs& a, void* stream) {
        return launch_linear_attention<LinearChunks<Config>>(a, forward_sweeps(a), stream);
      },
      1);
}

}  // namespace falchion::sm80
