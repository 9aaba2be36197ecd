// src/sm80/linear_attention/backward_plain.cuh: the backward variants of kind `plain`, for aligned tensors without
// feature map and decay. They exist because kind `general` has so much code that its single warp on each scheduler
// stalls on instruction fetches.
#pragma once

#include "sm80/linear_attention/exact/launch.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_backward_plain() {
  if constexpr (sizeof(Element) == 4) {
    return linear_attention_exact_kernel_of<LinearExactConfig<Element, kD, LinearKind::plain>, true>();
  } else {
    return linear_attention_backward<Element, kD, LinearKind::plain>();
  }
}

}  // namespace falchion::sm80
