// src/sm80/linear_attention_backward.cuh: linear attention, backward: the same operator three times with the roles
// exchanged (arXiv:2006.16236, equations 13 to 15), side by side in one grid, so that they share what the L2 holds:
//   dQ = forward of (dO, V, K),   dK = backward in time of (V, dO, Q),   dV = backward in time of (K, Q, dO)
#pragma once

#include "gpu/linear_attention_sweep.cuh"
#include "sm80/linear_attention_chunks.cuh"
#include "sm80/linear_attention_launch.cuh"

namespace falchion::sm80 {

template <class Element, int kD, LinearLevel level>
constexpr gpu::LinearAttentionKernel linear_attention_backward() {
  using Config = LinearAttentionConfig<Element, kD, level>;
  return linear_attention_row<Config>(
      [](const LinearAttentionArgs& a, void* stream) {
        return launch_linear_attention<LinearChunks<Config>>(a, backward_sweeps(a), stream);
      },
      3);
}

}  // namespace falchion::sm80
