// src/args/gpu_norm_args.hpp: what the plan hands to a GPU kernel of a norm. It is plain data for the reason that
// args/attention_call.hpp gives.
#pragma once

#include <cstdint>

#include "args/norm_call.hpp"

namespace falchion::gpu {

/// How a row is cut among threads. A thread holds some chunks of eight numbers each at a time.
struct NormCut {
  int threads = 1;    // of a row: a power of two, so they lie within one warp or fill whole warps
  int chunks = 1;     // of a thread, at a time
  bool whole = true;  // eight numbers lie side by side in memory, at multiples of 16 bytes
  bool kept = true;   // all of a row is in registers; else the row is read for its sums and again for y
};

struct NormArgs : NormCall {
  // Decided by the plan; all pointers are device addresses:
  NormCut cut;
  int sms = 0;         // that it may use
  bool early = false;  // programmatic dependent launch
};

/// A variant's limits. The plan decides by these facts, even if the code of the variant is not built.
struct NormFacts {
  int threads = 0;       // of a CTA, at least
  int most_threads = 0;  // of a row, and so of a CTA
  int chunks = 0;        // the most of a thread at a time
  int shared_bytes = 0;  // of a CTA

  constexpr bool operator==(const NormFacts&) const = default;
};

/// A variant that is built. launch enqueues and returns a cudaError_t (0 if all is well); it neither synchronises nor
/// allocates.
struct NormKernel {
  int (*launch)(const NormArgs&, void* stream) = nullptr;
  NormFacts facts;  // those of its code; variant_gpu.in asserts that the plan has the same
};

}  // namespace falchion::gpu
