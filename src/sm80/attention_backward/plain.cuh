// src/sm80/attention_backward/plain.cuh: the variants of kind `plain`, for problems with no feature but the band: full
// attention, causal or window masks, GQA, lengths.
#pragma once

#include "sm80/attention_backward/kernel.cuh"
#include "sm80/attention_backward/mma.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::AttentionBackwardKernel attention_backward_plain() {
  using Math = BackwardMma<Element, kD>;
  return attention_backward_kernel_of<Math>(launch_attention_backward<Math, PlainPairs<Math>>);
}

}  // namespace falchion::sm80
