// src/sm80/linear_attention/forward_normalise.cuh: the forward variants of kind `normalise`, which have the normaliser.
// They are a kind of their own because z beside S costs registers and products.
#pragma once

#include "sm80/linear_attention/forward.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_forward_normalise() {
  return linear_attention_forward<Element, kD, LinearKind::normalise>();
}

}  // namespace falchion::sm80
