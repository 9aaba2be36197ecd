// src/sm80/attention_forward/bytes.cuh: the variants of kind `bytes`: kind `pages_general` over a cache of 8 bits, in
// pages or in rows. What a cache has not (docs/contract.md) is never asked of them.
#pragma once

#include "sm80/attention_forward/general.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_bytes() {
  return attention_forward_entry<OfBytes<AttentionForwardConfig<Element, kD, Kind::bytes>>, GeneralScores<Element>>();
}

}  // namespace falchion::sm80
