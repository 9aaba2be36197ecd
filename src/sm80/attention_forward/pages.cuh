// src/sm80/attention_forward/pages.cuh: the variants of kind `pages`: kind `plain` over the pages of a cache.
#pragma once

#include "sm80/attention_forward/plain.cuh"

namespace falchion::sm80 {

template <class Element, int kD, VariantTile kTile>
constexpr gpu::AttentionKernel attention_forward_pages() {
  return attention_forward_entry<OfPages<AttentionForwardConfig<Element, kD, Kind::plain, kTile>>, PlainScores>();
}

}  // namespace falchion::sm80
