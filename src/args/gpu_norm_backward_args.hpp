// src/args/gpu_norm_backward_args.hpp: what the plan hands to a GPU kernel of a norm's backward pass. It is plain data
// for the reason that args/attention_call.hpp gives.
#pragma once

#include <cstdint>

#include "args/norm_backward_call.hpp"

namespace falchion::gpu {

/// How a row is cut among threads, and how many rows of a thread are on their way at a time.
struct NormBackwardCut {
  int threads = 1;    // of a row: a power of two, so they lie within one warp or fill whole warps
  int chunks = 1;     // of eight numbers each, of a thread at a time
  int stages = 0;     // rows that are loaded ahead into shared memory; 0: the row is read once for each pass
  bool whole = true;  // eight numbers lie side by side in memory, at multiples of 16 bytes

  constexpr bool operator==(const NormBackwardCut&) const = default;
};

struct NormBackwardArgs : NormBackwardCall {
  // Decided by the plan; all pointers are device addresses:
  NormBackwardCut cut;
  int ctas = 0;           // of the sweep: each takes whole parts, one after another
  float* sums = nullptr;  // where parts > 1: the sums of each part
  bool early = false;     // programmatic dependent launch
};

/// A variant's limits. The plan decides by these facts, even if the code of the variant is not built.
struct NormBackwardFacts {
  int threads = 0;       // of a CTA
  int chunks = 0;        // the most of a thread at a time
  int shared_bytes = 0;  // of a CTA, at least

  constexpr bool operator==(const NormBackwardFacts&) const = default;
};

/// A variant that is built. launch enqueues and returns a cudaError_t (0 if all is well); it neither synchronises nor
/// allocates.
struct NormBackwardKernel {
  int (*launch)(const NormBackwardArgs&, void* stream) = nullptr;
  NormBackwardFacts facts;  // those of its code; variant_gpu.in asserts that the plan has the same
};

}  // namespace falchion::gpu
