// src/sm80/attention_forward_few.cuh: the plain row for at most 16 query rows a K/V head (decode, with the heads of a
// GQA group as rows): one warp a CTA, as many CTAs as shared memory holds, so that the SM waits for memory and nothing
// else.
#pragma once

#include "sm80/attention_forward_plain.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_few() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Level::few>, PlainScores>();
}

}  // namespace falchion::sm80
