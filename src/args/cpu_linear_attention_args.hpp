// src/args/cpu_linear_attention_args.hpp: what the plan hands to a CPU kernel of linear attention. It is plain data for
// the reason that args/attention_call.hpp gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/linear_attention_call.hpp"
#include "args/pool.hpp"

namespace falchion::cpu {

struct LinearAttentionArgs : LinearAttentionCall {
  // Decided by the plan:
  Pool pool;
  int threads = 1;               // workers; each has its own slice of scratch
  int segments = 1;              // parts that each sequence is cut into; > 1 needs the states
  std::int64_t segment = 0;      // tokens of a segment, a multiple of the chunk
  std::byte* scratch = nullptr;  // threads * scratch_bytes bytes, each slice 64-byte aligned
  std::size_t scratch_bytes = 0;
  float* states = nullptr;  // LinearMemory::states bytes, as the kernel lays them out
};

/// The bytes that a kernel needs.
struct LinearMemory {
  std::size_t scratch = 0, states = 0;  // scratch is for one worker
};
/// One entry of the table of variants: the kernel of a level. memory() reads only sizes from its arguments.
struct LinearAttentionKernel {
  LinearMemory (*memory)(const LinearAttentionArgs&) = nullptr;
  void (*run)(const LinearAttentionArgs&) = nullptr;
  int chunk = 0;  // in tokens
};

}  // namespace falchion::cpu
