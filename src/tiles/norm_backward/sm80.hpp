// src/tiles/norm_backward/sm80.hpp: how the kernel of a norm's backward pass on sm80 cuts a row among threads, and the
// shared memory that it needs. It is plain C++, because the plan reads it even if the code of the variant is not built.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "args/gpu_norm_backward_args.hpp"

namespace falchion::sm80 {

inline constexpr int kGradChunk = 8;      // numbers of a chunk: 16 bytes in 16 bits
inline constexpr int kGradThreads = 256;  // of a CTA, which has an SM for itself: up to 255 registers a thread
inline constexpr int kGradWarps = kGradThreads / 32;
// Chunks of a thread: each has 16 sums in registers, so 8 of them take 128. With 128 registers 4 chunks would spill.
inline constexpr int kGradChunks = 8, kGradFewChunks = 4;
inline constexpr int kGradSegment = 4;  // threads of a row at least: 64 bytes side by side, where it has so many
inline constexpr int kGradSlotBytes = 2 * kGradWarps * 16;  // four sums of each warp, for two reductions

/// Bytes of the rows' loads in a stage: `sizes` are those of an element of x, grad_y and grad_residual_out together.
constexpr int grad_stage_bytes(int chunks, int sizes) { return kGradThreads * chunks * kGradChunk * sizes; }
/// A CTA's sums are added up in shared memory, grad_weight and grad_bias one after the other.
constexpr int grad_sum_bytes(int chunks) { return grad_stage_bytes(chunks, sizeof(float)); }
constexpr int grad_shared_bytes(const gpu::NormBackwardCut& cut, int sizes) {
  if (cut.chunks == 0) return kGradSlotBytes;
  return kGradSlotBytes + std::max(cut.stages * grad_stage_bytes(cut.chunks, sizes), grad_sum_bytes(cut.chunks));
}

constexpr gpu::NormBackwardFacts norm_backward_facts() {
  return {kGradThreads, kGradChunks, kGradSlotBytes + grad_sum_bytes(kGradFewChunks)};
}

/// The cut depends on d, on the types and on the device, but not on the number of rows. So the bits of a row of grad_x
/// do not depend on that number either. whole: 16 bytes can be moved at a time, so rows are loaded ahead into shared
/// memory, as many as it holds. A row that no cut keeps in registers has chunks = 0 and all threads of a CTA.
constexpr gpu::NormBackwardCut norm_backward_cut(std::int64_t d, bool whole, int sizes, std::size_t shared_bytes) {
  const std::int64_t all = (d + kGradChunk - 1) / kGradChunk;
  const auto cut_of = [&](int chunks, int stages) {
    const std::int64_t wanted =
        std::max<std::int64_t>((all + chunks - 1) / chunks, std::min<std::int64_t>(all, kGradSegment));
    const auto threads = std::bit_ceil(static_cast<std::uint64_t>(std::clamp<std::int64_t>(wanted, 1, kGradThreads)));
    return gpu::NormBackwardCut{static_cast<int>(threads), chunks, stages, whole};
  };
  const auto fits = [&](int chunks, int stages) {
    return d <= std::int64_t{kGradThreads} * kGradChunk * chunks &&
           static_cast<std::size_t>(grad_shared_bytes(cut_of(chunks, stages), sizes)) <= shared_bytes;
  };
  if (!whole && fits(kGradFewChunks, 0)) return cut_of(kGradFewChunks, 0);
  constexpr struct {
    int chunks, stages;
  } kBestFirst[] = {{kGradFewChunks, 3}, {kGradFewChunks, 2}, {kGradChunks, 3},
                    {kGradChunks, 2},    {kGradFewChunks, 1}, {kGradChunks, 1}};
  for (const auto& [chunks, stages] : kBestFirst)
    if (whole && fits(chunks, stages)) return cut_of(chunks, stages);
  return {kGradThreads, 0, 0, whole};
}

}  // namespace falchion::sm80
