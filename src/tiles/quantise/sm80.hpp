// src/tiles/quantise/sm80.hpp: how the kernel of Quantise for sm80 cuts blocks into pieces, and the shared memory that
// it needs. It is plain C++, because the plan reads it even if the code of the variant is not built.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "args/gpu_quantise_args.hpp"

namespace falchion::sm80 {

inline constexpr int kQuantiseChunk = 8;  // numbers of a chunk: 16 bytes in 16 bits
// Chunks of a thread: with four, 1024 threads of an SM have 64 KB of loads in flight; eight only where a block is so
// large that 512 threads would not hold it.
inline constexpr int kQuantiseChunks = 4, kQuantiseMostChunks = 8;
inline constexpr int kQuantiseThreads = 256;      // of a CTA whose pieces take at most a warp
inline constexpr int kQuantiseMostThreads = 512;  // of a piece
inline constexpr int kQuantisePart = 256;         // tokens whose sum one CTA makes, for the mean
inline constexpr int kQuantiseSharedBytes = kQuantiseThreads * kQuantiseChunk * 4;  // the sums of each thread

constexpr gpu::QuantiseFacts quantise_facts() {
  return {kQuantiseThreads, kQuantiseMostThreads, kQuantiseMostChunks, kQuantiseSharedBytes};
}

/// rows: of a block. scale_given: no number of a block depends on others. rotate: a thread has at most one chunk of
/// each block of the rotation.
constexpr gpu::QuantiseCut quantise_cut(std::int64_t d, std::int64_t rows, bool scale_given, bool rotate, bool whole) {
  constexpr std::int64_t kUsual = kQuantiseThreads * kQuantiseChunks;  // chunks of a piece that need not be a block
  const std::int64_t a_row = (d + kQuantiseChunk - 1) / kQuantiseChunk;
  const bool kept = rows * a_row <= (scale_given ? kUsual : kQuantiseMostThreads * kQuantiseMostChunks);
  gpu::QuantiseCut cut{.rows = kept ? rows : kUsual / a_row, .whole = whole, .kept = kept || scale_given};
  const std::int64_t all = cut.rows * a_row;
  cut.chunks = all <= (rotate ? 32 : 8)                        ? 1
               : all <= kQuantiseMostThreads * kQuantiseChunks ? kQuantiseChunks
                                                               : kQuantiseMostChunks;
  const auto threads = static_cast<std::uint64_t>((all + cut.chunks - 1) / cut.chunks);
  cut.threads = std::max(static_cast<int>(std::bit_ceil(threads)), rotate && cut.chunks > 1 ? 32 : 1);
  return cut;
}

}  // namespace falchion::sm80
