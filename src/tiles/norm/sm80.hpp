// src/tiles/norm/sm80.hpp: how the norm kernel of sm80 cuts a row among threads, and the shared memory that it needs.
// It is plain C++, because the plan reads it even if the code of the variant is not built.
#pragma once

#include <bit>
#include <cstdint>

#include "args/gpu_norm_args.hpp"

namespace falchion::sm80 {

inline constexpr int kNormChunk = 8;  // numbers of a chunk: 16 bytes in 16 bits
// Chunks of a thread at a time: as many as fit into 64 registers, of which a residual takes half. So 1024 threads of an
// SM have 64 KB of loads in flight either way.
inline constexpr int kNormChunks = 4, kNormChunksOfTwo = 2;
inline constexpr int kNormKept = 16384;   // rows up to this length are kept in registers
inline constexpr int kNormThreads = 128;  // of a CTA whose rows take fewer
inline constexpr int kNormMostThreads = kNormKept / kNormChunk / kNormChunks;
inline constexpr int kNormMostThreadsOfTwo = kNormKept / kNormChunk / kNormChunksOfTwo;
inline constexpr int kNormSegment =
    64;  // bytes of 16-bit numbers that the threads of a row move side by side, at least
inline constexpr int kNormWarps = kNormMostThreadsOfTwo / 32;
inline constexpr int kNormReductions = 4;  // slots of each warp: of two rows in turn, and two of a row summed again
// Four sums of each warp, and a row on its way in 16 bits.
inline constexpr int kNormSharedBytes = kNormReductions * kNormWarps * 16 + kNormKept * 2;

// Rows of so many bytes are asked into L2 by the CTA that runs one wave of CTAs earlier.
inline constexpr int kNormAhead = 16384;

constexpr gpu::NormFacts norm_facts() { return {kNormThreads, kNormMostThreadsOfTwo, kNormChunks, kNormSharedBytes}; }

/// The cut depends on d, and on whether there is a residual, but not on the number of rows. So the bits of a row do not
/// depend on that number either.
constexpr gpu::NormCut norm_cut(std::int64_t d, bool whole, bool residual) {
  const auto threads_for = [](std::int64_t wanted, int least, int most) {
    if (wanted >= most) return most;
    return wanted <= least ? least : static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(wanted)));
  };
  const std::int64_t all = (d + kNormChunk - 1) / kNormChunk;
  if (!whole || d > kNormKept) return {threads_for(all, 1, kNormMostThreads), 1, whole, false};
  const int chunks = residual ? kNormChunksOfTwo : kNormChunks;
  const int most = residual ? kNormMostThreadsOfTwo : kNormMostThreads;
  return {threads_for((all + chunks - 1) / chunks, kNormSegment / 16, most), chunks, true, true};
}

}  // namespace falchion::sm80
