// src/args/gpu_linear_attention_args.hpp: what the plan hands to a GPU kernel of linear attention, and one row of the
// table of kernels. Plain data without a CUDA type, like args/gpu_attention_args.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/linear_attention_call.hpp"

namespace falchion::gpu {

struct LinearAttentionArgs : LinearAttentionCall {
  // Decided by the plan. All pointers lie on the device.
  int segments = 1;          // parts that each sequence is cut into; > 1 needs the states
  std::int64_t segment = 0;  // tokens of one, a multiple of the chunk
  int parts = 1;             // whole chunks too, in which a segment's sum is worked out
  float* states = nullptr;   // workspace that the kernel lays out itself, 64-byte aligned; null where it wants none
  int wide = 0;              // sweeps of the row, from the last, whose CTAs have all columns of a head
  bool aligned = true;       // rows of q, k, v, o and the gradients start at multiples of 16 bytes
};

/// What a row needs and how it cuts a problem: the plan decides by it, also for a row whose code is not built.
struct LinearAttentionFacts {
  int d = 0;                          // d_qk and d_v up to this
  int chunk = 0;                      // tokens
  int ctas = 0;                       // meant to share an SM
  int threads = 0, shared_bytes = 0;  // of a CTA
  int columns = 0;                    // of a head's state that a CTA has; 0: all
  int wide_d = 0;                     // d_qk = d_v at which CTAs may have all columns of a head; 0: never
  int sweeps = 1;                     // CTAs side by side that go over the same tokens, as dQ, dK and dV

  constexpr bool operator==(const LinearAttentionFacts&) const = default;
};

/// A row that is built. launch enqueues and returns a cudaError_t (0: fine); it neither synchronises nor allocates.
struct LinearAttentionKernel {
  int (*launch)(const LinearAttentionArgs&, void* stream) = nullptr;
  LinearAttentionFacts facts;  // of its code; variant_gpu.in asserts that the plan's are the same
};

}  // namespace falchion::gpu
