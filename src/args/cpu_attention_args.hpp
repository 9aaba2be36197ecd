// src/args/cpu_attention_args.hpp: what the plan hands to a CPU kernel. It is plain data for the reason that
// args/attention_call.hpp gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/attention_call.hpp"
#include "args/pool.hpp"

namespace falchion::cpu {

struct AttentionArgs : AttentionCall {
  // Decided by the plan:
  Pool pool;
  int threads = 1;                                     // workers; each has its own slice of scratch
  int rows = 0;                                        // query rows of one work item, a multiple of the tile's
  int keys = 0;                                        // keys of one block, a multiple of the tile's
  int splits = 1;                                      // parts that the keys are cut into; > 1 needs partials
  int heads = 1;                                       // decode: K/V heads of one work item
  bool decode = false;                                 // few rows: run the kernel whose lanes are head dims
  std::byte *packed_k = nullptr, *packed_v = nullptr;  // amx: all of K and V in tile order; null: packed by block
  std::byte* scratch = nullptr;                        // threads * scratch_bytes bytes
  std::size_t scratch_bytes = 0;
  float* partials = nullptr;     // splits > 1: O, m, l and the maximum of each part
  std::byte* rotated = nullptr;  // with rotary embedding: the rotated q, dense
};

/// The bytes that a kernel needs.
struct Memory {
  std::size_t packed_k = 0, packed_v = 0, scratch = 0, partials = 0;  // scratch is for one worker
  std::size_t rotated = 0;                                            // the plan's own: q after rotary embedding
};
/// One entry of the table of variants: the kernel of a level. memory() reads only sizes from its arguments.
struct AttentionKernel {
  Memory (*memory)(const AttentionArgs&) = nullptr;
  void (*run)(const AttentionArgs&) = nullptr;
  int tile_rows = 0, tile_keys = 0;  // rows and keys are multiples of these
};

}  // namespace falchion::cpu
