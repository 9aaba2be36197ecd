// src/sm80/attention_forward/config.hpp: tiles, layouts and shared memory of the sm80 forward kernels. It compiles
// without nvcc, so that tests/sm80_layouts_test.cpp can go through every layout on the host.
#pragma once

#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include "tiles/attention_forward/sm80.hpp"

namespace falchion::sm80 {

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;
using f32 = float;

/// The config of one variant: its tile has M query rows, N keys and D head dims. Each warp owns M / warps of the rows,
/// from Q to O.
template <class Element_, int kD_, Kind kind, VariantTile name = VariantTile::usual>
struct AttentionForwardConfig {
  using Element = Element_;
  static constexpr Tile kTile = attention_forward_tile(kind, kD_, name);
  static constexpr int kD = kD_, kRows = kTile.rows, kKeys = kTile.keys;
  static constexpr int kWarps = kTile.warps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStages = kTile.stages, kCtas = kTile.ctas;
  static constexpr bool kQInRegisters = kTile.q_in_registers;
  static constexpr bool kPages = false, kBytes = false, kBytesOfV = false;
  static_assert(kD % 32 == 0 && kRows % (16 * kWarps) == 0 && kKeys % 16 == 0 && (kStages == 1 || kStages == 2));

  // In shared memory a tile consists of boxes of 8 rows x 64 elements (a row of a box is 128 bytes, which is all 32
  // banks), or of 8 x 32 where D is no multiple of 64. The swizzle moves the 16-byte chunk c of row r to c ^ (r % 8)
  // (in rows of 64 bytes to c ^ (r / 2 % 4)), so that the 8 rows that one phase of ldmatrix reads lie in 8 different
  // groups of banks.
  static constexpr int kBox = kD % 64 == 0 ? 64 : 32;
  using Box = decltype(cute::composition(
      cute::Swizzle<(kBox == 64 ? 3 : 2), 3, 3>{},
      cute::Layout<cute::Shape<cute::_8, cute::Int<kBox>>, cute::Stride<cute::Int<kBox>, cute::_1>>{}));
  using LayoutQ = decltype(cute::tile_to_shape(Box{}, cute::Shape<cute::Int<kRows>, cute::Int<kD>>{}));  // (M, D)
  using LayoutK = decltype(cute::tile_to_shape(Box{}, cute::Shape<cute::Int<kKeys>, cute::Int<kD>>{}));  // (N, D)
  using LayoutV = LayoutK;                                                                               // (N, D)
  using LayoutVt = decltype(cute::composition(                                                           // (D, N)
      LayoutV{}, cute::make_layout(cute::Shape<cute::Int<kD>, cute::Int<kKeys>>{}, cute::GenRowMajor{})));
  using LayoutO = LayoutQ;  // (M, D), in the place of Q: a warp overwrites only rows that no other warp reads

  /// Returns (row, column) of the 16-byte chunk number `at` of a warp's rows of O. The chunks of one box come before
  /// those of the next box, for all rows of the warp. In row-major order, 8 neighbouring lanes would read from two
  /// boxes, and with box rows of 64 bytes this would be a bank conflict.
  static constexpr CUTE_HOST_DEVICE auto chunk_of_o(int warp, int at) {
    constexpr int kChunks = kBox / 8, kLines = kRows / kWarps;
    const int line = at / kChunks % kLines;
    return cute::make_coord(line / 16 * 16 * kWarps + warp * 16 + line % 16,
                            (at / kChunks / kLines * kChunks + at % kChunks) * 8);
  }

  static constexpr int kSizeQ = kRows * kD, kSizeK = kKeys * kD;  // in elements
  static constexpr int kSharedBytes = (kSizeQ + 2 * kStages * kSizeK) * static_cast<int>(sizeof(Element));

  // Both products, S = Q K^T and O += P V, use mma.sync m16n8k16 with A row-major, B column-major and f32 accumulators.
  using MmaAtom = std::conditional_t<std::is_same_v<Element, bf16>, cute::SM80_16x8x16_F32BF16BF16F32_TN,
                                     cute::SM80_16x8x16_F32F16F16F32_TN>;
  using TiledMma =
      cute::TiledMMA<cute::MMA_Atom<MmaAtom>, cute::Layout<cute::Shape<cute::Int<kWarps>, cute::_1, cute::_1>>,
                     cute::Tile<cute::Int<16 * kWarps>, cute::_16, cute::_16>>;
  using CopyAtomQ = cute::Copy_Atom<cute::SM75_U32x4_LDSM_N, Element>;
  using CopyAtomK = cute::Copy_Atom<cute::SM75_U32x4_LDSM_N, Element>;
  using CopyAtomV = cute::Copy_Atom<cute::SM75_U16x8_LDSM_T, Element>;  // ldmatrix transposes V while it reads
  using CopyAtomO = cute::Copy_Atom<cute::UniversalCopy<std::uint32_t>, Element>;  // a fragment holds pairs of columns

  // A copy from global memory moves 16 bytes per thread; kBox / 8 threads copy one row of a box.
  static constexpr int kThreadsARow = kBox / 8;
  using GlobalCopy = decltype(cute::make_tiled_copy(
      cute::Copy_Atom<cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>, Element>{},
      cute::Layout<cute::Shape<cute::Int<kThreads / kThreadsARow>, cute::Int<kThreadsARow>>,
                   cute::Stride<cute::Int<kThreadsARow>, cute::_1>>{},
      cute::Layout<cute::Shape<cute::_1, cute::_8>>{}));
};

/// The same for K and V in the pages of a cache.
template <class Config>
struct OfPages : Config {
  static constexpr bool kPages = true;
  static constexpr int kCtas = ctas_of_pages(Config::kCtas);
};

/// The same for a cache of 8 bits, in pages or in rows. Behind the tiles lie the scales of their keys.
template <class Config>
struct OfBytes : OfPages<Config> {
  static constexpr bool kBytes = true;
  static constexpr int kSharedBytes = Config::kSharedBytes + scale_bytes(Config::kStages, Config::kKeys);
};

}  // namespace falchion::sm80
