// src/sm80/linear_attention_backward_plain.cuh: the row for aligned tensors and nothing else asked for: in the general
// row one warp a scheduler waits for its instructions.
#pragma once

#include "sm80/linear_attention_exact_launch.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_backward_plain() {
  if constexpr (sizeof(Element) == 4) {
    return linear_attention_exact_row<LinearExactConfig<Element, kD, LinearLevel::plain>, true>();
  } else {
    return linear_attention_backward<Element, kD, LinearLevel::plain>();
  }
}

}  // namespace falchion::sm80
