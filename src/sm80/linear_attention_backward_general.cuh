// src/sm80/linear_attention_backward_general.cuh: the row for every feature but the normaliser.
#pragma once

#include "sm80/linear_attention_backward.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_backward_general() {
  return linear_attention_backward<Element, kD, LinearLevel::general>();
}

}  // namespace falchion::sm80
