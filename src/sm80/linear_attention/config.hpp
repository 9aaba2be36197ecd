// src/sm80/linear_attention/config.hpp: tiles, layouts and shared memory of the sm80 kernels of linear attention. It
// compiles without nvcc, so that tests/sm80_linear_test.cpp can go through every layout on the host.
#pragma once

#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include "tiles/linear_attention/sm80.hpp"

namespace falchion::sm80 {

using namespace gpu;

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;
using f32 = float;

/// The config of one variant with 16-bit operands. C is the number of tokens in a chunk, E the number of head dims of q
/// and k, and M that of v and o. A CTA has 64 of the M columns, and each of its 4 warps has 16 of these. All products
/// except Q K^T are transposed, so that the state S^T (M, E) stays in the accumulators of its warp, which already have
/// the layout of operand A of S^T Q^T.
template <class Element_, int kD_, LinearKind kind>
struct LinearAttentionConfig {
  using Element = Element_;
  static constexpr bool kZ = kind == LinearKind::normalise, kGeneral = kind != LinearKind::plain;
  static constexpr LinearTile kTile = linear_tile(kD_);
  static constexpr int kD = kD_, kChunk = kTile.chunk, kColumns = kTile.columns;
  static constexpr int kWarps = kTile.warps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStages = kTile.stages, kCtas = kTile.ctas;
  // All stores of a chunk come after all of its products. ptxas moves no read over a store, so products would wait for
  // the stores before them. This gives 67 % of a copy's speed instead of 63 % (8 x 16 heads, 2048 tokens, d 64). Used
  // where there are enough registers.
  static constexpr bool kStoresLast = !kGeneral && kD <= 128;

  // Tiles consist of boxes of 8 rows x 64 elements, swizzled as in attention_forward/config.hpp.
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

  struct Shared {  // aligned to 128 bytes
    Element q[kStages][kChunk * kD], k[kStages][kChunk * kD], v[kStages][kChunk * kColumns];
    Element p[2][kChunk * kChunk], o[2][kChunk * kColumns];
    float sum[3][kChunk], grown[3][kChunk], left[3][kChunk];  // the decay; see DecayOfChunk
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));

  using MmaAtom = std::conditional_t<std::is_same_v<Element, bf16>, cute::SM80_16x8x16_F32BF16BF16F32_TN,
                                     cute::SM80_16x8x16_F32F16F16F32_TN>;
  using TiledMma =
      cute::TiledMMA<cute::MMA_Atom<MmaAtom>, cute::Layout<cute::Shape<cute::Int<kWarps>, cute::_1, cute::_1>>,
                     cute::Tile<cute::Int<16 * kWarps>, cute::_16, cute::_16>>;
  using CopyAtom = cute::Copy_Atom<cute::SM75_U32x4_LDSM_N, Element>;
  using CopyAtomT = cute::Copy_Atom<cute::SM75_U16x8_LDSM_T, Element>;  // ldmatrix transposes K and V
  using CopyAtomP = cute::Copy_Atom<cute::UniversalCopy<std::uint32_t>, Element>;

  // A copy from global memory moves 16 bytes per thread; 8 threads copy one row of 64 elements.
  using GlobalCopy = decltype(cute::make_tiled_copy(
      cute::Copy_Atom<cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>, Element>{},
      cute::Layout<cute::Shape<cute::Int<kThreads / 8>, cute::_8>, cute::Stride<cute::_8, cute::_1>>{},
      cute::Layout<cute::Shape<cute::_1, cute::_8>>{}));
};

/// The config of one variant that keeps f32 between all products, each of which consists of up to three TF32 products
/// (gpu/blocks/tf32.cuh). It is for f32, and for results with large cancellation. Rows of q, k and v lie in shared
/// memory as f32. Their stride is a multiple of 32 floats plus 8, so that a warp has no bank conflict when lane l reads
/// pair l % 4 of row l / 4, nor when it reads column l / 4 of row l % 4.
template <class Element_, int kD_, LinearKind kind>
struct LinearExactConfig {
  using Element = Element_;
  static constexpr bool kGeneral = kind != LinearKind::plain;
  static constexpr int kParts = sizeof(Element) == 4 ? 2 : 1;  // one TF32 number holds an f16 or bf16 number exactly
  static constexpr LinearTile kTile = linear_exact_tile(kD_);
  static constexpr int kD = kD_, kChunk = kTile.chunk, kColumns = kTile.columns;
  static constexpr int kWarps = kTile.warps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStages = kTile.stages, kCtas = kTile.ctas;
  static constexpr int kStrideQ = kD + 8, kStrideV = kColumns + 8, kStrideP = kChunk + 4;

  struct Shared {
    float q[kStages][kChunk * kStrideQ], k[kStages][kChunk * kStrideQ], v[kStages][kChunk * kStrideV];
    float p[kChunk * kStrideP], o[kChunk * kStrideP];
    float weights[2][kGeneral ? 10 : 1][kChunk];  // see LinearWeights
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
};

}  // namespace falchion::sm80
