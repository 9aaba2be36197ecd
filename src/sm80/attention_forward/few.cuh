// src/sm80/attention_forward/few.cuh: the variants of kind `few`: kind `plain` for at most 16 query rows per K/V head
// (decode, where the heads of a GQA group are rows). A CTA has one warp, and an SM holds as many CTAs as its shared
// memory allows, so that memory is the only limit.
#pragma once

#include "sm80/attention_forward/plain.cuh"

namespace falchion::sm80 {

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_few() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Kind::few>, PlainScores>();
}

}  // namespace falchion::sm80
