// src/sm80/norm_tiles.hpp: how the norm kernel of sm80 cuts a row among threads, and what it needs for it. It is plain
// C++, because the plan reads it even where the code of the variant is not built.
#pragma once

#include <bit>
#include <cstdint>

#include "args/gpu_norm_args.hpp"

namespace falchion::sm80 {

inline constexpr int kNormChunk = 8;           // numbers of a chunk: 16 bytes in 16 bits
inline constexpr int kNormChunks = 2;          // of a thread at a time
inline constexpr int kNormThreads = 128;       // of a CTA whose rows take fewer
inline constexpr int kNormMostThreads = 1024;  // of a row: with kNormChunks of each it keeps rows of 16384 numbers
inline constexpr int kNormLongThreads = 512;   // of a row that is not kept
inline constexpr int kNormWarps = kNormMostThreads / 32;
inline constexpr int kNormSharedBytes = 2 * kNormWarps * 8;  // two sums of each warp, for two reductions

constexpr gpu::NormFacts norm_facts() { return {kNormThreads, kNormMostThreads, kNormChunks, kNormSharedBytes}; }

/// It depends on d alone, so the bits of a row do not depend on how many rows there are. Short rows have a chunk a
/// thread; up to a warp and above it each thread has kNormChunks, so that many loads are under way and few threads have
/// to add their sums up.
constexpr gpu::NormCut norm_cut(std::int64_t d, bool whole) {
  const auto threads_for = [](std::int64_t wanted, int most) {
    const auto some = std::bit_ceil(static_cast<std::uint64_t>(wanted > 1 ? wanted : 1));
    return some < static_cast<std::uint64_t>(most) ? static_cast<int>(some) : most;
  };
  const std::int64_t chunks = (d + kNormChunk - 1) / kNormChunk;
  if (!whole || chunks > kNormMostThreads * kNormChunks)
    return {threads_for(chunks, kNormLongThreads), 1, whole, false};
  if (chunks <= 32) return {threads_for(chunks, 32), 1, true, true};
  const std::int64_t shared = (chunks + kNormChunks - 1) / kNormChunks;
  return {threads_for(shared < 32 ? 32 : shared, kNormMostThreads), kNormChunks, true, true};
}

}  // namespace falchion::sm80
