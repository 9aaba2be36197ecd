// src/sm80/linear_attention/backward_exact.cuh: the backward variants of kind `exact`, which have every feature and
// every type, and keep f32 between all products.
#pragma once

#include "sm80/linear_attention/exact/launch.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_backward_exact() {
  return linear_attention_exact_kernel_of<LinearExactConfig<Element, kD, LinearKind::exact>, true>();
}

}  // namespace falchion::sm80
