// src/args/gpu_attention_backward_args.hpp: what the plan hands to a GPU kernel of attention's backward pass, and one
// entry of the table of variants. It is plain data without CUDA types, like args/gpu_attention_args.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args/attention_backward_call.hpp"

namespace falchion::gpu {

struct AttentionBackwardArgs : AttentionBackwardCall {
  // Decided by the plan; all pointers are device addresses:
  bool aligned = true;             // rows of q, k, v, o and grad_o start at multiples of 16 bytes
  std::int64_t row_tiles = 0;      // tiles of queries of one head; packed: an upper bound for all sequences together
  std::int64_t key_tiles = 0;      // the same of keys
  std::int64_t ctas_at_once = 1;   // of this variant: as many as the device has room for
  std::byte* workspace = nullptr;  // as the variant lays it out, 64-byte aligned
  bool grads_aligned = false;      // rows of grad_q, grad_k and grad_v start at multiples of 16 bytes
  bool early = false;              // programmatic dependent launch (gpu/blocks/stream_order.cuh)
};

/// A variant's limits and tiles. The plan decides by these facts, even if the code of the variant is not built.
struct AttentionBackwardFacts {
  int d = 0;               // the largest head dim that it takes
  int rows = 0, keys = 0;  // of a tile
  int threads = 0;         // of a CTA
  int ctas = 0;            // CTAs that are meant to share an SM
  int shared_bytes = 0;    // of a CTA
  bool goes_on = false;    // a CTA goes on to other tiles, which it draws from a counter

  constexpr bool operator==(const AttentionBackwardFacts&) const = default;
};

/// The same, and the function that computes the variant's bytes of workspace.
struct BackwardVariantFacts : AttentionBackwardFacts {
  std::size_t (*workspace)(const AttentionBackwardArgs&) = nullptr;
};

/// A variant that is built. launch enqueues and returns a cudaError_t (0 if all is well); it neither synchronises nor
/// allocates.
struct AttentionBackwardKernel {
  int (*launch)(const AttentionBackwardArgs&, void* stream) = nullptr;
  AttentionBackwardFacts facts;  // those of its code; variant_gpu.in asserts that the plan has the same
};

}  // namespace falchion::gpu
