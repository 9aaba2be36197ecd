// src/sm80/gemm_config.hpp: tiles and shared memory of the sm80 GEMM kernels.
#pragma once

#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include "sm80/gemm_tiles.hpp"

namespace falchion::sm80 {

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;
using f32 = float;

/// A stage of shared memory holds one block of k of A and of B. Where it is taken as it lies along k, a tile is 128
/// lines of 128 bytes, one for each row. Where it lies along its rows, it is two boxes of 64 rows, with a line for each
/// k. The 16-byte chunk c of line l lies at c ^ (l % 8) (blocks/sm80_lane_blocks.hpp).
template <class Element_>
struct GemmConfig {
  using Element = Element_;
  static constexpr Products kKind = sizeof(Element) == 4 ? Products::bits32 : Products::bits16;
  static constexpr GemmTiles kTile = gemm_tiles(kKind);
  static constexpr int kRows = kTile.rows, kColumns = kTile.columns, kDepth = kTile.depth;
  static constexpr int kThreads = kTile.threads, kStages = kTile.stages, kCtas = kTile.ctas;
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(Element));
  static_assert(kRows == 128 && kColumns == 128 && kDepth * sizeof(Element) == 128);

  static constexpr int kOperandBytes = 128 * 128, kStageBytes = 2 * kOperandBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;

  // With swiglu each group of 64 rows of B in a tile is 32 gates and then the 32 rows of "up" that belong to them, so
  // that both halves of a column are in one tile.
  static constexpr int kGroup = 32;

  // The sums wait for the epilogue in rows of so many floats: the 4 rows that a phase of 8-byte stores touches lie in
  // different banks.
  static constexpr int kPitch = kColumns + 8;
  static_assert(kRows * kPitch * 4 <= kSharedBytes);
};

}  // namespace falchion::sm80
