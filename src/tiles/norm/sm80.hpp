// src/tiles/norm/sm80.hpp: how the norm kernel of sm80 cuts a row among threads, and the shared memory that it needs.
// It is plain C++, because the plan reads it even if the code of the variant is not built.
#pragma once

#include <bit>
#include <cstdint>

#include "args/gpu_norm_args.hpp"

namespace falchion::sm80 {

inline constexpr int kNormChunk = 8;  // numbers of a chunk: 16 bytes in 16 bits
// Chunks of a thread at a time. 512 threads of an SM have 128 registers each: for 32 numbers, for as many of the next
// row and, in 16 bits, for their weight and bias. So 32 KB of loads are in flight while a row is summed.
inline constexpr int kNormChunks = 4;
inline constexpr int kNormKept = 16384;   // rows up to this length are kept in registers
inline constexpr int kNormThreads = 128;  // of a CTA whose rows take fewer
inline constexpr int kNormMostThreads = kNormKept / kNormChunk / kNormChunks;  // of an SM too
inline constexpr int kNormSegment =
    64;  // bytes of 16-bit numbers that the threads of a row move side by side, at least
inline constexpr int kNormWarps = kNormMostThreads / 32;
inline constexpr int kNormSharedBytes = 4 * kNormWarps * 16;  // four sums of each warp, for four reductions

constexpr gpu::NormFacts norm_facts() { return {kNormThreads, kNormMostThreads, kNormChunks, kNormSharedBytes}; }

/// The cut depends on d, but not on the number of rows. So the bits of a row do not depend on that number either.
constexpr gpu::NormCut norm_cut(std::int64_t d, bool whole) {
  const int chunks = whole ? kNormChunks : 1;
  const bool kept = whole && d <= kNormKept;
  const std::int64_t all = (d + kNormChunk - 1) / kNormChunk, wanted = (all + chunks - 1) / chunks;
  const int least = kept ? kNormSegment / 16 : 1;
  if (wanted >= kNormMostThreads) return {kNormMostThreads, chunks, whole, kept};
  return {wanted <= least ? least : static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(wanted))), chunks, whole,
          kept};
}

}  // namespace falchion::sm80
