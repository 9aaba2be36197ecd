// src/sm80/linear_attention/backward_general.cuh: the backward variants of kind `general`, which have feature maps and
// operands that are not 16-byte aligned. Decay, the normaliser and value heads that share q and k need kind `exact`.
#pragma once

#include "sm80/linear_attention/backward.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_backward_general() {
  return linear_attention_backward<Element, kD, LinearKind::general>();
}

}  // namespace falchion::sm80
