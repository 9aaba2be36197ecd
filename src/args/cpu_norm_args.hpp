// src/args/cpu_norm_args.hpp: what the plan hands to a CPU kernel of a norm. It is plain data for the reason that
// args/attention_call.hpp gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/norm_call.hpp"
#include "args/pool.hpp"

namespace falchion::cpu {

struct NormArgs : NormCall {
  // Decided by the plan:
  Pool pool;
  int threads = 1;               // workers; each has its own slice of scratch
  std::int64_t item = 1;         // rows of one work item
  std::byte* scratch = nullptr;  // threads * scratch_bytes bytes, each slice 64-byte aligned
  std::size_t scratch_bytes = 0;
};

/// One entry of the table of variants. scratch() is for one worker, in bytes; it reads only sizes from its arguments.
struct NormKernel {
  std::size_t (*scratch)(const NormArgs&) = nullptr;
  void (*run)(const NormArgs&) = nullptr;
};

}  // namespace falchion::cpu
