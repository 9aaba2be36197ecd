// src/args/gpu_linear_attention_args.hpp: what the plan hands to a GPU kernel of linear attention, and one entry of the
// table of variants. It is plain data without CUDA types, like args/gpu_attention_args.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/linear_attention_call.hpp"

namespace falchion::gpu {

struct LinearAttentionArgs : LinearAttentionCall {
  // Decided by the plan; all pointers are device addresses:
  int segments = 1;          // parts that each sequence is cut into; > 1 needs the states
  std::int64_t segment = 0;  // tokens of a segment, a multiple of the chunk
  int parts = 1;             // parts of whole chunks in which the sum of a segment is made
  float* states = nullptr;   // workspace in the kernel's own layout, 64-byte aligned; null if it needs none
  int wide = 0;              // sweeps, counted from the last, whose CTAs have all columns of a head
  bool aligned = true;       // rows of q, k, v, o and the gradients start at multiples of 16 bytes
};

/// A variant's limits and tiles. The plan decides by these facts, even if the code of the variant is not built.
struct LinearAttentionFacts {
  int d = 0;                          // the largest d_qk and d_v that it takes
  int chunk = 0;                      // in tokens
  int ctas = 0;                       // CTAs that are meant to share an SM
  int threads = 0, shared_bytes = 0;  // of a CTA
  int columns = 0;                    // columns of a head's state that a CTA has; 0: all
  int wide_d = 0;                     // d_qk = d_v at which CTAs may have all columns of a head; 0: never
  int sweeps = 1;                     // sweeps side by side over the same tokens, such as dQ, dK and dV

  constexpr bool operator==(const LinearAttentionFacts&) const = default;
};

/// The same, and the function that computes the variant's bytes of workspace.
struct LinearVariantFacts : LinearAttentionFacts {
  std::size_t (*workspace)(const LinearAttentionArgs&) = nullptr;
};

/// A variant that is built. launch enqueues and returns a cudaError_t (0 if all is well); it neither synchronises nor
/// allocates.
struct LinearAttentionKernel {
  int (*launch)(const LinearAttentionArgs&, void* stream) = nullptr;
  LinearAttentionFacts facts;  // those of its code; variant_gpu.in asserts that the plan has the same
};

}  // namespace falchion::gpu
