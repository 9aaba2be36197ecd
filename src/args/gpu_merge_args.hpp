// src/args/gpu_merge_args.hpp: what merge() hands to its kernel, src/gpu/attention_forward/merge.cu. It is plain data
// for the reason that args/attention_call.hpp gives, and there is one kernel, so its launch is declared here too.
#pragma once

#include <cstdint>

#include "args/number.hpp"
#include "args/view.hpp"
#include "base/divisor.hpp"

namespace falchion::gpu {

inline constexpr int kMaxMergeParts = 32;  // a part takes 88 of the 4096 bytes that a kernel's parameters may have

inline constexpr int kMergeChunk = 8;  // numbers of a thread at a time: 16 bytes in 16 bits

/// o is (b, s, h, d), lse (b, h, s, 1) in f32.
struct MergeState {
  View o, lse;
  Number type{};  // of o
};

struct MergeArgs {
  MergeState part[kMaxMergeParts], merged;
  int parts = 0;
  bool aligned =
      false;  // each row of each o is eight numbers or a multiple, side by side, from a multiple of 16 bytes on
  std::int64_t rows = 0, d = 0;  // row r has the indices (r / h / s, r / h % s, r % h)
  std::int64_t s = 0, h = 0;
  Divisor by_s, by_h;  // where there are fewer than 2^31 rows
};

/// Enqueues the kernel and returns a cudaError_t. A build without GPU variants has one that is never called, in
/// src/runtime/runtime_none.cpp.
int launch_merge(const MergeArgs& a, void* stream);

}  // namespace falchion::gpu
