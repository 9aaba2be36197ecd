// src/sm80/linear_attention/backward.cuh: linear attention backward with 16-bit operands. It applies the forward
// operator three times with the roles of the tensors exchanged (arXiv:2006.16236, equations 13 to 15). The three sweeps
// run side by side in one grid, so that they share the data in the L2:
//   dQ = operator of (dO, V, K), from the first token to the last
//   dK = operator of (V, dO, Q), from the last token to the first
//   dV = operator of (K, Q, dO), from the last token to the first
#pragma once

#include "gpu/linear_attention/sweep.cuh"
#include "sm80/linear_attention/kernel.cuh"
#include "sm80/linear_attention/launch.cuh"

namespace falchion::sm80 {

template <class Element, int kD, LinearKind kind>
constexpr gpu::LinearAttentionKernel linear_attention_backward() {
  using Config = LinearAttentionConfig<Element, kD, kind>;
  return linear_attention_kernel_of<Config>(
      [](const LinearAttentionArgs& a, void* stream) {
        return launch_linear_attention<LinearChunks<Config>>(a, backward_sweeps(a), stream);
      },
      3);
}

}  // namespace falchion::sm80
