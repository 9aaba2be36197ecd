// src/sm80/linear_attention_backward_plain.cuh: the row for aligned tensors and nothing else asked for.
#pragma once

#include "sm80/linear_attention_backward.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_backward_plain() {
  return linear_attention_backward<Element, kD, LinearLevel::plain>();
}

}  // namespace falchion::sm80
