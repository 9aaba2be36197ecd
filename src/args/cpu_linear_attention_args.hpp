// src/args/cpu_linear_attention_args.hpp: what the plan hands to a CPU kernel of linear attention. Plain data, like
// args/attention_call.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/cpu_attention_args.hpp"
#include "args/linear_attention_call.hpp"

namespace falchion::cpu {

struct LinearAttentionArgs : LinearAttentionCall {
  // Decided by the plan.
  Pool pool;
  int threads = 1;               // workers; each has its own slice of scratch
  int segments = 1;              // parts that each sequence is cut into; > 1 needs the states
  std::int64_t segment = 0;      // tokens of one, a multiple of the chunk
  std::byte* scratch = nullptr;  // threads * scratch_bytes, each slice 64-byte aligned
  std::size_t scratch_bytes = 0;
  float* states = nullptr;  // LinearMemory::states bytes, as the kernel lays them out
};

/// One row of the table: the level's kernel and how much memory it wants for these args (which it only reads sizes of).
struct LinearMemory {
  std::size_t scratch = 0, states = 0;  // bytes; scratch for one worker
};
struct LinearAttentionKernel {
  LinearMemory (*memory)(const LinearAttentionArgs&) = nullptr;
  void (*run)(const LinearAttentionArgs&) = nullptr;
  int chunk = 0;  // tokens
};

}  // namespace falchion::cpu
