// src/gpu/linear_attention/entry.hpp: makes the entry of a linear attention kernel in the table of variants from its
// config.
#pragma once

#include "args/gpu_linear_attention_args.hpp"

namespace falchion::gpu {

/// Returns the entry. `sweeps` is how many sweeps run side by side in one grid.
template <class Config>
constexpr LinearAttentionKernel linear_attention_kernel_of(int (*launch)(const LinearAttentionArgs&, void*),
                                                           int sweeps) {
  LinearAttentionFacts facts{.d = Config::kD, .chunk = Config::kChunk, .ctas = Config::kCtas};
  facts.threads = Config::kThreads;
  facts.shared_bytes = Config::kSharedBytes;
  facts.columns = Config::kColumns;
  facts.sweeps = sweeps;
  return {launch, facts};
}

}  // namespace falchion::gpu
