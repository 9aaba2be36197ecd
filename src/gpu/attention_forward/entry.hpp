// src/gpu/attention_forward/entry.hpp: makes the entry of an attention kernel in the table of variants from its config.
#pragma once

#include "args/gpu_attention_args.hpp"
#include "gpu/attention_forward/before.hpp"

namespace falchion::gpu {

/// Returns the entry. `launch` launches the kernel. `probabilities` launches the kernel that computes the probabilities
/// after it, and is null for variants without that feature. Element is the type of the operands.
template <class Config, class Element = typename Config::Element>
constexpr AttentionKernel attention_kernel_of(int (*launch)(const AttentionArgs&, void* stream),
                                              int (*probabilities)(const AttentionArgs&, void* stream) = nullptr) {
  return {launch,
          probabilities,
          &launch_attention_append<Element>,
          {.d = Config::kD,
           .rows = Config::kRows,
           .keys = Config::kKeys,
           .threads = Config::kThreads,
           .stages = Config::kStages,
           .ctas = Config::kCtas,
           .shared_bytes = Config::kSharedBytes}};
}

}  // namespace falchion::gpu
