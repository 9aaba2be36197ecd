// src/sm80/attention_backward/general.cuh: the variants of kind `general`: every feature, and f32.
#pragma once

#include "sm80/attention_backward/bias.cuh"
#include "sm80/attention_backward/fma.cuh"
#include "sm80/attention_backward/mma.cuh"

namespace falchion::sm80 {

using f32 = float;

template <class Element, int kD>
constexpr gpu::AttentionBackwardKernel attention_backward_general() {
  using Math = std::conditional_t<std::is_same_v<Element, f32>, BackwardFma<kD>, BackwardMma<Element, kD>>;
  return attention_backward_kernel_of<Math>([](const AttentionBackwardArgs& a, void* stream) {
    const int error = launch_attention_backward<Math, GeneralPairs<Math>>(a, stream);
    return error == cudaSuccess ? launch_attention_backward_bias<Math>(a, stream) : error;
  });
}

}  // namespace falchion::sm80
