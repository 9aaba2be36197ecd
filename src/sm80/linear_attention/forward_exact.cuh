// src/sm80/linear_attention/forward_exact.cuh: the forward variants of kind `exact`, which have every feature and every
// type, and keep f32 between all products.
#pragma once

#include "sm80/linear_attention/exact/launch.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_forward_exact() {
  return linear_attention_exact_kernel_of<LinearExactConfig<Element, kD, LinearKind::exact>, false>();
}

}  // namespace falchion::sm80
