// src/sm90/attention_forward_brief.cuh: the row plain in shorter tiles, for grids whose long ones would leave SMs idle.
#pragma once

#include "sm90/attention_forward_plain.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_brief() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Level::brief>, PlainScores>();
}

}  // namespace falchion::sm90
