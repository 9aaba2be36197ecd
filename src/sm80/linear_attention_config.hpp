// src/sm80/linear_attention_config.hpp: tiles, layouts and shared memory of the sm80 kernels of linear attention.
// Compiles without nvcc, so that tests/sm80_linear_test.cpp can walk every layout on the host.
#pragma once

#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include "sm80/attention_forward_config.hpp"
#include "sm80/linear_attention_tiles.hpp"

namespace falchion::sm80 {

/// C tokens a chunk, E head dims of q and k, M of v and o: a CTA has 64 of the M, each of its 4 warps 16 of them. All
/// products but Q K^T are transposed, so that the state S^T (M, E) stays in the accumulators of its warp for good: as
/// it lies there it is operand A of S^T Q^T.
template <class Element_, int kD_, LinearLevel level>
struct LinearAttentionConfig {
  using Element = Element_;
  static constexpr bool kZ = level == LinearLevel::normalise, kGeneral = level != LinearLevel::plain;
  static constexpr LinearTile kTile = linear_tile(kD_);
  static constexpr int kD = kD_, kChunk = kTile.chunk, kColumns = kTile.columns;
  static constexpr int kWarps = kTile.warps, kThreads = 32 * kWarps;
  static constexpr int kStages = kTile.stages, kCtas = kTile.ctas;
  // All stores of a round after all its products, for ptxas moves no read over a store: 67 % of a copy's speed instead
  // of 63 % (8 x 16 heads, 2048 tokens, d 64). Where registers last.
  static constexpr bool kStoresLast = !kGeneral && kD <= 128;

  // Rows of 64 elements in boxes of 8, as in attention_forward_config.hpp.
  using Box = decltype(cute::composition(
      cute::Swizzle<3, 3, 3>{}, cute::Layout<cute::Shape<cute::_8, cute::_64>, cute::Stride<cute::_64, cute::_1>>{}));
  using LayoutQ = decltype(cute::tile_to_shape(Box{}, cute::Shape<cute::Int<kChunk>, cute::Int<kD>>{}));  // (C, E)
  using LayoutV =
      decltype(cute::tile_to_shape(Box{}, cute::Shape<cute::Int<kChunk>, cute::Int<kColumns>>{}));  // (C, M)
  using LayoutP = LayoutV;                                                                          // (C, C)
  using LayoutKt = decltype(cute::composition(                                                      // (E, C)
      LayoutQ{}, cute::make_layout(cute::Shape<cute::Int<kD>, cute::Int<kChunk>>{}, cute::GenRowMajor{})));
  using LayoutVt = decltype(cute::composition(  // (M, C)
      LayoutV{}, cute::make_layout(cute::Shape<cute::Int<kColumns>, cute::Int<kChunk>>{}, cute::GenRowMajor{})));

  struct Shared {  // 128-byte aligned
    Element q[kStages][kChunk * kD], k[kStages][kChunk * kD], v[kStages][kChunk * kColumns];
    Element p[2][kChunk * kChunk], o[2][kChunk * kColumns];
    float sum[3][kChunk], grown[3][kChunk], left[3][kChunk];  // of the decay: DecayOfChunk
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));

  using MmaAtom = std::conditional_t<std::is_same_v<Element, bf16>, cute::SM80_16x8x16_F32BF16BF16F32_TN,
                                     cute::SM80_16x8x16_F32F16F16F32_TN>;
  using TiledMma =
      cute::TiledMMA<cute::MMA_Atom<MmaAtom>, cute::Layout<cute::Shape<cute::Int<kWarps>, cute::_1, cute::_1>>,
                     cute::Tile<cute::Int<16 * kWarps>, cute::_16, cute::_16>>;
  using CopyAtom = cute::Copy_Atom<cute::SM75_U32x4_LDSM_N, Element>;
  using CopyAtomT = cute::Copy_Atom<cute::SM75_U16x8_LDSM_T, Element>;  // K^T, V^T are read transposed, never stored so
  using CopyAtomP = cute::Copy_Atom<cute::UniversalCopy<std::uint32_t>, Element>;

  // Global memory: 16 bytes a thread, 8 threads a row of 64 elements.
  using GlobalCopy = decltype(cute::make_tiled_copy(
      cute::Copy_Atom<cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>, Element>{},
      cute::Layout<cute::Shape<cute::Int<kThreads / 8>, cute::_8>, cute::Stride<cute::_8, cute::_1>>{},
      cute::Layout<cute::Shape<cute::_1, cute::_8>>{}));
};

/// The same with f32 between all products, each of which is three of TF32 (blocks/sm80_tf32.cuh): for f32, and for what
/// cancels. Rows of q, k, v lie in shared memory as f32, 8 floats apart from a multiple of 32: lanes of a warp that
/// read (row lane / 4, pair lane % 4) or (row lane % 4, column lane / 4) find 32 different banks.
template <class Element_, int kD_, LinearLevel level>
struct LinearExactConfig {
  using Element = Element_;
  static constexpr bool kGeneral = level != LinearLevel::plain;
  static constexpr int kParts = sizeof(Element) == 4 ? 2 : 1;  // TF32 holds f16 and bf16
  static constexpr LinearTile kTile = linear_exact_tile(kD_);
  static constexpr int kD = kD_, kChunk = kTile.chunk, kColumns = kTile.columns;
  static constexpr int kWarps = kTile.warps, kThreads = 32 * kWarps;
  static constexpr int kStages = kTile.stages, kCtas = kTile.ctas;
  static constexpr int kStrideQ = kD + 8, kStrideV = kColumns + 8, kStrideP = kChunk + 4;

  struct Shared {
    float q[kStages][kChunk * kStrideQ], k[kStages][kChunk * kStrideQ], v[kStages][kChunk * kStrideV];
    float p[kChunk * kStrideP], o[kChunk * kStrideP];
    float weights[2][kGeneral ? 10 : 1][kChunk];  // LinearWeights
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
};

}  // namespace falchion::sm80
