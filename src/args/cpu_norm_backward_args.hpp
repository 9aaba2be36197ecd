// src/args/cpu_norm_backward_args.hpp: what the plan hands to a CPU kernel of a norm's backward pass. It is plain data
// for the reason that args/attention_call.hpp gives.
#pragma once

#include <cstddef>

#include "args/norm_backward_call.hpp"
#include "args/pool.hpp"

namespace falchion::cpu {

struct NormBackwardArgs : NormBackwardCall {
  // Decided by the plan:
  Pool pool;
  int threads = 1;               // workers; each has its own slice of scratch
  std::byte* scratch = nullptr;  // threads * scratch_bytes bytes, each slice 64-byte aligned
  std::size_t scratch_bytes = 0;
  float* sums = nullptr;  // where parts > 1: the sums of each part
};

/// One entry of the table of variants. scratch() is for one worker, in bytes; it reads only sizes from its arguments.
struct NormBackwardKernel {
  std::size_t (*scratch)(const NormBackwardArgs&) = nullptr;
  void (*run)(const NormBackwardArgs&) = nullptr;
};

}  // namespace falchion::cpu
