// src/args/gpu_quantise_args.hpp: what the plan hands to a GPU kernel of Quantise. It is plain data for the reason that
// args/attention_call.hpp gives.
#pragma once

#include <cstdint>

#include "args/quantise_call.hpp"
#include "base/divisor.hpp"

namespace falchion::gpu {

/// How blocks are cut into pieces, whose numbers the threads hold in registers, in chunks of eight columns of a row.
struct QuantiseCut {
  std::int64_t rows = 1;  // of a piece
  int threads = 1;        // of a piece: a power of two, so they lie within one warp or fill whole warps
  int chunks = 1;         // of a thread, at most
  bool whole = true;      // eight numbers lie side by side in memory, at multiples of 16 bytes
  bool kept = true;       // a piece is a whole block; else the scales, if they are not given, take a read of their own
};

struct QuantiseArgs : QuantiseCall {
  // Decided by the plan; all pointers are device addresses:
  QuantiseCut cut;
  std::int64_t pieces = 0;  // of a sequence's head
  Divisor by_heads, by_pieces, by_pieces_of_a_block, by_chunks_of_a_row;
  float* sums = nullptr;  // of the parts that s is cut into, for the mean: (b, parts, h, d)
  std::int64_t parts = 0;
  bool early = false;  // programmatic dependent launch
};

/// A variant's limits. The plan decides by these facts, even if the code of the variant is not built.
struct QuantiseFacts {
  int threads = 0;       // of a CTA, at least
  int most_threads = 0;  // of a piece, and so of a CTA
  int chunks = 0;        // the most of a thread
  int shared_bytes = 0;  // of a CTA

  constexpr bool operator==(const QuantiseFacts&) const = default;
};

/// A variant that is built. launch enqueues and returns a cudaError_t (0 if all is well); it neither synchronises nor
/// allocates.
struct QuantiseKernel {
  int (*launch)(const QuantiseArgs&, void* stream) = nullptr;
  QuantiseFacts facts;  // those of its code; variant_gpu.in asserts that the plan has the same
};

}  // namespace falchion::gpu
