// src/sm80/attention_forward/pages_general.cuh: the variants of kind `pages_general`: kind `general` over the pages of
// a cache. What a cache has not (docs/contract.md) is never asked of them.
#pragma once

#include "sm80/attention_forward/general.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_pages_general() {
  if constexpr (std::is_same_v<Element, f32>) {
    return attention_forward_f32_entry<OfPages<AttentionForwardF32Config<kD>>>();
  } else {
    return attention_forward_entry<OfPages<AttentionForwardConfig<Element, kD, Kind::general>>,
                                   GeneralScores<Element>>();
  }
}

}  // namespace falchion::sm80
