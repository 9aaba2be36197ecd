// src/sm90/linear_attention_backward_plain.cuh: the rows for aligned tensors that are not packed, and nothing else
// asked for.
#pragma once

#include "sm80/linear_attention_backward.cuh"
#include "sm90/linear_attention_plain.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_backward_plain() {
  return linear_attention_plain<Element, kD, 3, sm80::backward_sweeps>();
}

}  // namespace falchion::sm90
