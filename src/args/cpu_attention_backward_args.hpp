// src/args/cpu_attention_backward_args.hpp: what the plan hands to a CPU kernel of attention's backward pass. It is
// plain data for the reason that args/attention_call.hpp gives.
#pragma once

#include <cstddef>

#include "args/attention_backward_call.hpp"
#include "args/cpu_attention_args.hpp"

namespace falchion::cpu {

struct AttentionBackwardArgs : AttentionBackwardCall {
  // Decided by the plan:
  Pool pool;
  int threads = 1;  // workers; each has its own slice of scratch
  int rows = 0;     // query rows of a tile
  int keys = 0;     // keys of a block
  int parts = 1;    // parts that the keys of a head are cut into, each with its own sum of grad_q
  // The gradients that the problem asks for; their views have no memory yet when memory() is called.
  bool wants_q = false, wants_kv = false, wants_bias = false, wants_alibi = false;
  std::int64_t capacity_q = 0, capacity_k = 0;  // rows that grad_q has, and grad_k and grad_v, in one element of axis b
  std::byte* scratch = nullptr;                 // threads * scratch_bytes bytes, each slice 64-byte aligned
  std::size_t scratch_bytes = 0;
  std::byte* shared = nullptr;  // BackwardMemory::shared bytes, as the kernel lays them out
};

/// The bytes that a kernel needs.
struct BackwardMemory {
  std::size_t scratch = 0, shared = 0;  // scratch is for one worker
};
/// One entry of the table of variants: the kernel of a level. memory() reads only sizes from its arguments.
struct AttentionBackwardKernel {
  BackwardMemory (*memory)(const AttentionBackwardArgs&) = nullptr;
  void (*run)(const AttentionBackwardArgs&) = nullptr;
  int tile_rows = 0, tile_keys = 0;  // rows and keys are multiples of these
};

}  // namespace falchion::cpu
