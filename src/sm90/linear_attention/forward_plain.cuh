// src/sm90/linear_attention/forward_plain.cuh: Hopper's variants of kind plain for the forward pass of linear
// attention. They accept aligned tensors that are not packed, without feature map, decay or normaliser. Their kernels
// are in plain.cuh; docs/design/linear_attention.md describes them.
#pragma once

#include "gpu/linear_attention/sweep.cuh"
#include "sm90/linear_attention/plain.cuh"

namespace falchion::sm90 {

using namespace gpu;

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_forward_plain() {
  return linear_attention_plain<Element, kD, 1, forward_sweeps>();
}

}  // namespace falchion::sm90
