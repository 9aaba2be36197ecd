// src/sm90/linear_attention_backward_plain.cuh: the rows for aligned tensors that are not packed, and nothing else
// asked for.
#pragma once

#include "gpu/linear_attention_sweep.cuh"
#include "sm90/linear_attention_plain.cuh"

namespace falchion::sm90 {

using namespace gpu;

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_backward_plain() {
  return linear_attention_plain<Element, kD, 3, backward_sweeps>();
}

}  // namespace falchion::sm90
