// src/sm90/linear_attention_forward_plain.cuh: the row for aligned tensors that are not packed, and nothing else asked
// for.
#pragma once

#include "sm80/linear_attention_forward.cuh"
#include "sm90/linear_attention_launch.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
constexpr gpu::LinearAttentionKernel linear_attention_forward_plain() {
  using Config = LinearAttentionConfig<Element, kD>;
  return {[](const LinearAttentionArgs& a, void* stream) {
            return sm90::launch_linear_attention<Config>(a, sm80::forward_sweeps(a), stream);
          },
          sm80::forward_workspace,
          kD,
          Config::kChunk,
          Config::kCtas,
          Config::kThreads,
          Config::kSharedBytes,
          Config::kColumns,
          1};
}

}  // namespace falchion::sm90
