// src/sm80/linear_attention_forward_normalise.cuh: the row with the normaliser: z beside S costs registers and
// products.
#pragma once

#include "sm80/linear_attention_forward.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_forward_normalise() {
  return linear_attention_forward<Element, kD, LinearLevel::normalise>();
}

}  // namespace falchion::sm80
