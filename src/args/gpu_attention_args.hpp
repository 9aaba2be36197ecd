// src/args/gpu_attention_args.hpp: what the plan hands to a GPU kernel, by value, and one entry of the table of
// variants. It is plain data without CUDA types, because the plan is also built where there is no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/attention_call.hpp"

namespace falchion::gpu {

/// The most parts that the keys may be cut into: the combine kernel keeps their weights in registers, spread over a
/// warp.
inline constexpr int kMaxSplits = 128;

/// The bytes that AttentionArgs::counter points to (gpu/blocks/tile_counter.cuh).
inline constexpr std::size_t kTileCounterBytes = 16;

struct AttentionArgs : AttentionCall {
  // Decided by the plan; all pointers are device addresses:
  int group = 1;            // query heads of one K/V head that are rows of one tile; 1: a tile has one head
  int splits = 1;           // parts that the keys are cut into; > 1 needs partial_o and partial_m_l
  int walkers = 0;          // sm90: CTAs that walk over the tiles; 0: one CTA per tile
  void* counter = nullptr;  // sm90: the counter of the tiles (gpu/blocks/tile_counter.cuh); null: in turn
  // sm90: columns of a section of tiles (attention_forward/schedule.hpp), 0: no sections; of kind decode K/V heads of
  // CTAs side by side (attention_forward/decode/schedule.hpp).
  std::int64_t section = 0;
  std::int64_t last_section = 0;  // sm90: columns of the last one, at most
  bool aligned = true;            // rows of q, k, v, o start at multiples of 16 bytes
  std::int64_t tiles = 0;         // row tiles of one head or group; packed: an upper bound for all sequences together
  float* partial_o = nullptr;     // (splits, b, s_q, h_q, d_v) f32, normalised; of kind decode its workspace
  float* partial_m_l = nullptr;   // (splits, b, s_q, h_q, 2) f32: m, which exponents are relative to, and l, their sum
  void* copies = nullptr;         // sm90, kinds halves and fp8: operands in another form, in the workspace
  void* rotated = nullptr;        // with rotary embedding: the rotated q, dense
  bool early = false;             // programmatic dependent launch (gpu/blocks/stream_order.cuh)
};

/// A variant's limits and tiles. The plan decides by these facts, even if the code of the variant is not built.
struct AttentionFacts {
  int d = 0;               // the largest head dim that it takes
  int rows = 0, keys = 0;  // of a tile
  int threads = 0;         // of a CTA
  int stages = 0;          // K/V tiles in flight
  int ctas = 0;            // CTAs that are meant to share an SM
  int shared_bytes = 0;    // of a CTA

  constexpr bool operator==(const AttentionFacts&) const = default;
};

/// A variant that is built. launch enqueues and returns a cudaError_t (0 if all is well); it neither synchronises nor
/// allocates.
struct AttentionKernel {
  int (*launch)(const AttentionArgs&, void* stream) = nullptr;
  int (*probabilities)(const AttentionArgs&, void* stream) = nullptr;  // computes them from q and k; or null
  /// Before it: new keys, rotated q. Null where `launch` does that itself.
  int (*append)(const AttentionArgs&, void* stream) = nullptr;
  AttentionFacts facts;  // those of its code; variant_gpu.in asserts that the plan has the same
};

}  // namespace falchion::gpu
