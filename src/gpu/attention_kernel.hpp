// src/gpu/attention_kernel.hpp: the table's entry of an attention kernel, from its config.
#pragma once

#include "args/gpu_attention_args.hpp"

namespace falchion::gpu {

/// The row of the table. probabilities: null, or what runs after launch.
template <class Config>
constexpr AttentionKernel table_row(int (*launch)(const AttentionArgs&, void* stream),
                                    int (*probabilities)(const AttentionArgs&, void* stream) = nullptr) {
  return {launch,
          probabilities,
          {.d = Config::kD,
           .rows = Config::kRows,
           .keys = Config::kKeys,
           .threads = Config::kThreads,
           .stages = Config::kStages,
           .ctas = Config::kCtas,
           .shared_bytes = Config::kSharedBytes}};
}

}  // namespace falchion::gpu
