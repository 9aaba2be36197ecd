// src/cpu/attention_args.hpp: what the plan hands to a CPU kernel. Plain data: a kernel is compiled once for each CPU
// level, and nothing with an out-of-line inline function (std::string, std::vector) may be seen by two levels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace falchion::cpu {

/// Axes (b, s, h, d), or (b, h, s_q, s_k) for bias, mask, probabilities, (b, h, s_q, 1) for lse, row_max.
struct View {
  void* data = nullptr;         // null: absent
  std::int64_t stride[4] = {};  // elements
};

/// Calls task(context, i) once for each i in [0, n).
struct Pool {
  void (*parallel_for)(void* self, int n, void (*task)(void* context, int i), void* context) = nullptr;
  void* self = nullptr;
};

struct AttentionArgs {
  View q, k, v, o, lse, row_max, probabilities, bias, mask;
  bool bias_f32 = false;                                                      // else the input type
  const float* alibi = nullptr;                                               // (h_q) or null
  std::int64_t b = 0, s_q = 0, s_k = 0, h_q = 0, h_k = 0, d_qk = 0, d_v = 0;  // s: capacity of one sequence
  bool packed = false;                                                        // q, k, v, o are (1, total, h, d)
  const std::int32_t *cu_q = nullptr, *cu_k = nullptr;                        // (b + 1) when packed
  std::int64_t total_q = 0, total_k = 0;                                      // packed: rows there are
  const std::int32_t *used_q = nullptr, *used_k = nullptr;                    // (b) or null
  std::int64_t left = -1, right = -1;                                         // band; below 0 unbounded
  bool top_left = false;
  float scale = 1, softcap = 0;  // scale is final
  float dropout = 0;
  std::uint64_t seed = 0, offset = 0;

  // Decided by the plan.
  Pool pool;
  int threads = 1;                                     // workers; each has its own slice of scratch
  int rows = 0;                                        // query rows of one work item, a multiple of the tile's
  int keys = 0;                                        // keys of one block, a multiple of the tile's
  int splits = 1;                                      // parts the keys are cut into; > 1 needs partials
  int heads = 1;                                       // decode: K/V heads of one work item
  bool decode = false;                                 // few rows: the kernel whose lanes are head dims
  std::byte *packed_k = nullptr, *packed_v = nullptr;  // amx: whole K and V in tile order; null: packed by block
  std::byte* scratch = nullptr;                        // threads * scratch_bytes
  std::size_t scratch_bytes = 0;
  float* partials = nullptr;  // splits > 1: O, m, l of each part
};

/// One row of the table: the level's kernel and how much memory it wants for these args (which it only reads sizes of).
struct Memory {
  std::size_t packed_k = 0, packed_v = 0, scratch = 0, partials = 0;  // bytes; scratch for one worker
};
struct AttentionKernel {
  Memory (*memory)(const AttentionArgs&) = nullptr;
  void (*run)(const AttentionArgs&) = nullptr;
  int tile_rows = 0, tile_keys = 0;  // rows and keys are multiples of these
};

}  // namespace falchion::cpu
