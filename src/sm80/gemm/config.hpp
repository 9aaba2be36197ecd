// src/sm80/gemm/config.hpp: tiles and shared memory of the sm80 GEMM kernels.
#pragma once

#include <cutlass/bfloat16.h>
#include <cutlass/float8.h>
#include <cutlass/half.h>

#include <cstdint>
#include <type_traits>

#include "tiles/gemm/sm80.hpp"

namespace falchion::sm80 {

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;
using f32 = float;
using e4m3 = cutlass::float_e4m3_t;
using i8 = std::int8_t;

template <class Element>
inline constexpr GemmKind kTileKind = sizeof(Element) == 4 ? GemmKind::bits32 : GemmKind::bits16;
template <>
inline constexpr GemmKind kTileKind<e4m3> = GemmKind::e4m3;
template <>
inline constexpr GemmKind kTileKind<i8> = GemmKind::i8;

/// A stage of shared memory holds one block of k of A and of B. In 16 bits, an operand that is contiguous along k is
/// 128 lines of 128 bytes, one for each row; one that is contiguous along its rows is two boxes of 64 rows, with a line
/// for each k. The 16-byte chunk c of line l lies at c ^ (l % 8) (gpu/blocks/lane_blocks.hpp). In f32 there is a line
/// for each k, with all rows, for both layouts. So it is in 8 bits, where e4m3 becomes f32 on load, and a line of i8 is
/// for four k.
template <class Element_, VariantTile name = VariantTile::usual>
struct GemmConfig {
  using Element = Element_;
  static constexpr GemmKind kKind = kTileKind<Element>;
  static constexpr bool kWords = sizeof(Element) != 2;  // lines of 4-byte words, and no tensor cores
  using Sum = std::conditional_t<kKind == GemmKind::i8, std::int32_t, float>;
  static constexpr GemmTiles kTile = gemm_tiles(kKind, name);
  static constexpr int kRows = kTile.rows, kColumns = kTile.columns, kDepth = kTile.depth;
  static constexpr int kThreads = kTile.threads, kStages = kTile.stages, kCtas = kTile.ctas;
  static constexpr int kLines = kTile.lines();
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(Element));
  static_assert(kWords || (kRows == 128 && kColumns == 128 && kDepth * sizeof(Element) == 128));

  static constexpr int kBytesA = kTile.operand_bytes(kRows), kStageBytes = kTile.stage_bytes();  // B follows A
  static constexpr int kSharedBytes = kStages * kStageBytes;

  // With swiglu each group of 64 rows of B in a tile is 32 gates and then the matching 32 rows of "up", so that both
  // halves of a column are in one tile.
  static constexpr int kGroup = 32;

  // Floats in a row of the sums in shared memory, before the epilogue: padded so that the 4 rows of a phase of 8-byte
  // stores lie in different banks. With lines of words, 16 bytes are stored at a time.
  static constexpr int kPitch = kWords ? kColumns + 4 : kColumns + 8;
  static_assert(kRows * kPitch * 4 <= kSharedBytes);
};

}  // namespace falchion::sm80
