// src/args/gpu_attention_args.hpp: what the plan hands to a GPU kernel, by value, and one row of the table of kernels.
// Plain data without a CUDA type: the plan is built where no CUDA is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/attention_call.hpp"

namespace falchion::gpu {

/// Parts that the keys may be cut into: the combine kernel keeps their weights in shared memory.
inline constexpr int kMaxSplits = 128;

struct AttentionArgs : AttentionCall {
  // Decided by the plan. All pointers lie on the device.
  int group = 1;               // query heads of one K/V head that are rows of one tile; 1: a tile has one head
  int splits = 1;              // parts the keys are cut into; > 1 needs the two below
  int walkers = 0;             // sm90: CTAs that walk over the tiles; 0: one CTA a tile
  bool pairs = false;          // they take a long tile with a short one (sm90/attention_schedule.hpp)
  bool aligned = true;         // rows of q, k, v, o start at multiples of 16 bytes
  std::int64_t tiles = 0;      // row tiles of one head (of one group); packed: an upper bound of all sequences together
  float* partial_o = nullptr;  // (splits, b, s_q, h_q, d_v) f32, normalised
  float* partial_m_l = nullptr;  // (splits, b, s_q, h_q, 2) f32: what exponents were taken from, and their sum
  bool early = false;            // programmatic dependent launch (blocks/stream_order.cuh)
};

/// What a row needs and how it cuts a problem: the plan decides by it, also for a row whose code is not built.
struct AttentionFacts {
  int d = 0;               // head dims up to this
  int rows = 0, keys = 0;  // of a tile
  int threads = 0;         // of a CTA
  int stages = 0;          // K/V tiles in flight
  int ctas = 0;            // meant to share an SM
  int shared_bytes = 0;    // of a CTA

  constexpr bool operator==(const AttentionFacts&) const = default;
};

/// A row that is built. launch enqueues and returns a cudaError_t (0: fine); it neither synchronises nor allocates.
struct AttentionKernel {
  int (*launch)(const AttentionArgs&, void* stream) = nullptr;
  int (*probabilities)(const AttentionArgs&, void* stream) = nullptr;  // once more from q and k; or null
  AttentionFacts facts;  // of its code; variant_gpu.in asserts that the plan's are the same
};

}  // namespace falchion::gpu
