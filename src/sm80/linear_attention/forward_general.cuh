// src/sm80/linear_attention/forward_general.cuh: the forward variants of kind `general`, which have every feature
// except the normaliser.
#pragma once

#include "sm80/linear_attention/forward.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_forward_general() {
  return linear_attention_forward<Element, kD, LinearKind::general>();
}

}  // namespace falchion::sm80
