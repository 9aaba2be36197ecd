// src/sm90/attention_forward/mla.cuh: the forward variants of kind mla on Hopper: kind plain for d_qk up to 192 with
// d_v up to 128, the shape of prefill in multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).
// docs/design/sm90_forward.md describes the kernel.
#pragma once

#include "sm90/attention_forward/plain.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_mla() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Kind::mla>, PlainScores>();
}

}  // namespace falchion::sm90
