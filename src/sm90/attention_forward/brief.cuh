// src/sm90/attention_forward/brief.cuh: the forward variants of kind brief on Hopper: kind plain in shorter tiles, two
// CTAs on an SM, for grids whose long tiles would leave SMs idle. docs/design/sm90_forward.md has the measurements.
#pragma once

#include "sm90/attention_forward/plain.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_brief() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Kind::brief>, PlainScores>();
}

}  // namespace falchion::sm90
