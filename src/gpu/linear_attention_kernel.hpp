// src/gpu/linear_attention_kernel.hpp: the table's entry of a kernel of linear attention, from its config.
#pragma once

#include "args/gpu_linear_attention_args.hpp"

namespace falchion::gpu {

/// The row of the table. sweeps: how many CTAs stand side by side.
template <class Config>
constexpr LinearAttentionKernel linear_attention_row(int (*launch)(const LinearAttentionArgs&, void*), int sweeps) {
  LinearAttentionFacts facts{.d = Config::kD, .chunk = Config::kChunk, .ctas = Config::kCtas};
  facts.threads = Config::kThreads, facts.shared_bytes = Config::kSharedBytes;
  facts.columns = Config::kColumns, facts.sweeps = sweeps;
  return {launch, facts};
}

}  // namespace falchion::gpu
