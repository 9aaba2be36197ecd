// src/sm90/linear_attention_config.hpp: tiles, layouts, barriers and shared memory of linear attention on Hopper.
#pragma once

#include <cutlass/arch/barrier.h>

#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>

namespace falchion::sm90 {

using bf16 = cutlass::bfloat16_t;

/// C tokens a chunk, E head dims of q and k, M of v and o: a CTA is one warpgroup with 64 of the M, and a warp that
/// loads. As on sm80 (sm80/linear_attention_config.hpp) all but Q K^T is transposed, so that S^T (M, E) stays in the
/// accumulators and is operand A of S^T Q^T; but four warps read operand B together. bf16 alone: in f16 S overflows.
template <class Element_, int kD_>
struct LinearAttentionConfig {
  using Element = Element_;
  static constexpr int kD = kD_, kChunk = 64, kColumns = 64, kThreads = 160;
  static constexpr int kCtas = kD <= 64 ? 2 : 1, kStages = kD <= 64 ? 3 : 4;

  using AtomK = cute::GMMA::Layout_K_SW128_Atom<Element>;
  using AtomMN = cute::GMMA::Layout_MN_SW128_Atom<Element>;
  template <int kRows, int kColumns_>
  using ByRows =
      decltype(cute::tile_to_shape(AtomK{}, cute::Shape<cute::Int<kRows>, cute::Int<kColumns_>, cute::Int<kStages>>{}));
  template <int kRows, int kColumns_>
  using ByColumns =
      decltype(cute::tile_to_shape(AtomMN{}, cute::Shape<cute::Int<kColumns_>, cute::Int<kRows>, cute::Int<kStages>>{},
                                   cute::Step<cute::_2, cute::_1, cute::_3>{}));
  using LayoutQ = ByRows<kChunk, kD>;            // (C, E, stages)
  using LayoutKt = ByColumns<kChunk, kD>;        // (E, C, stages)
  using LayoutVt = ByColumns<kChunk, kColumns>;  // (M, C, stages)
  using LayoutP = decltype(cute::tile_to_shape(AtomK{}, cute::Shape<cute::Int<kChunk>, cute::Int<kChunk>, cute::_2>{}));
  using LayoutTile = decltype(cute::tile_to_shape(AtomK{}, cute::Shape<cute::_64, cute::_64>{}));  // one P, one O

  struct Shared {
    alignas(1024) Element q[kStages][kChunk * kD];        // (C, E)
    alignas(1024) Element k[kStages][kChunk * kD];        // (C, E)
    alignas(1024) Element v[kStages][kChunk * kColumns];  // (C, M)
    alignas(1024) Element p[2][kChunk * kChunk];          // (C, C)
    alignas(1024) Element o[2][kChunk * kColumns];        // (C, M)
    cutlass::arch::ClusterTransactionBarrier full[kStages];
    cutlass::arch::ClusterBarrier empty[kStages];  // each of the four warps has read it
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kCtas * (kSharedBytes + 1024) <= 228 << 10);

  template <int kN, int kK>
  using ShapeOf = cute::Shape<cute::_64, cute::Int<kN>, cute::Int<kK>>;
  template <int kN, int kK, cute::GMMA::Major kA, cute::GMMA::Major kB>
  using Ss =
      decltype(cute::make_tiled_mma(cute::GMMA::ss_op_selector<Element, Element, float, ShapeOf<kN, kK>, kA, kB>()));
  static constexpr auto kByK = cute::GMMA::Major::K, kByMN = cute::GMMA::Major::MN;
  using MmaQk = Ss<kChunk, kD, kByK, kByK>;       // P = Q K^T
  using MmaPv = Ss<kChunk, kChunk, kByMN, kByK>;  // O^T += V^T P^T
  using MmaState = Ss<kD, kChunk, kByMN, kByMN>;  // S^T += V^T K
  using MmaQs = decltype(cute::make_tiled_mma(    // O^T = S^T Q^T
      cute::GMMA::rs_op_selector<Element, Element, float, ShapeOf<kChunk, kD>, kByK, kByK>()));
  // An accumulator of wgmma m64nN lies in the registers of 4 warps as one of mma m16n8 of 4 warps below each other.
  using MmaOfRows = cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x16_F32BF16BF16F32_TN>,
                                   cute::Layout<cute::Shape<cute::_4, cute::_1, cute::_1>>>;
};

}  // namespace falchion::sm90
