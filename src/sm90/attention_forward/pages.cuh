// src/sm90/attention_forward/pages.cuh: the variants of kind pages on Hopper: kind plain over the pages of a KV cache.
// docs/design/sm90_forward.md, "Pages", describes what differs.
#pragma once

#include "sm90/attention_forward/plain.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_pages() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Kind::pages>, PlainScores>();
}

}  // namespace falchion::sm90
