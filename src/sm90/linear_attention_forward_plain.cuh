// src/sm90/linear_attention_forward_plain.cuh: the rows for aligned tensors that are not packed, and nothing else
// asked for.
#pragma once

#include "sm80/linear_attention_forward.cuh"
#include "sm90/linear_attention_halves_launch.cuh"
#include "sm90/linear_attention_launch.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_forward_plain() {
  if constexpr (std::is_same_v<Element, float>) {
    using Config = LinearHalvesConfig<kD>;
    return sm80::linear_attention_row<Config, 1, launch_linear_halves<Config>, sm80::forward_sweeps>();
  } else {
    using Config = LinearAttentionConfig<Element, kD>;
    return sm80::linear_attention_row<Config, 1, launch_linear_attention<Config>, sm80::forward_sweeps>();
  }
}

}  // namespace falchion::sm90
