// src/sm90/gemm_few_config.hpp: layouts, barriers and shared memory of Hopper's GEMM kernel for few rows of A.
#pragma once

#include <cutlass/arch/barrier.h>

#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>

#include "sm90/gemm_few_tiles.hpp"

namespace falchion::sm90 {

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;
using gpu::Major;

/// The rows of the product are rows of B, and its columns, of which wgmma has 8 or more, are the rows of A. A stage has
/// one block of k of B and of A. A box of TMA is 64 elements wide, 128 bytes. Where an operand lies along k, a tile is
/// one box of all its rows; where it lies along its rows, it is boxes of 64 rows with a line for each k.
template <class Element_, Major kMajorA_, Major kMajorB_, int kWidth_>
struct GemmFewConfig {
  using Element = Element_;
  static constexpr Major kMajorA = kMajorA_, kMajorB = kMajorB_;
  static constexpr GemmFewTiles kTile = gemm_few_tiles();
  static constexpr int kWidth = kWidth_, kColumns = kTile.columns, kDepth = kTile.depth, kStages = kTile.stages;
  static constexpr int kConsumers = kTile.consumers(), kConsumerWarps = 4 * kConsumers, kThreads = kTile.threads();
  static constexpr int kPitch = kTile.pitch();
  static constexpr int kLineBytes = kDepth * 2;  // of a row of an operand in a stage
  static_assert(kDepth == 64 && kWidth <= kTile.rows && kWidth % (kMajorA == Major::k ? 8 : 64) == 0);

  template <Major kMajor>
  static constexpr auto kGmma = kMajor == Major::k ? cute::GMMA::Major::K : cute::GMMA::Major::MN;
  template <Major kMajor>
  using Atom = std::conditional_t<kMajor == Major::k, cute::GMMA::Layout_K_SW128_Atom<Element>,
                                  cute::GMMA::Layout_MN_SW128_Atom<Element>>;
  template <Major kMajor, int kLines>
  using Layout = decltype(cute::tile_to_shape(
      Atom<kMajor>{}, cute::Shape<cute::Int<kLines>, cute::Int<kDepth>, cute::Int<kStages>>{},
      std::conditional_t<kMajor == Major::k, cute::Step<cute::_1, cute::_2, cute::_3>,
                         cute::Step<cute::_2, cute::_1, cute::_3>>{}));
  using LayoutB = Layout<kMajorB, kColumns>;  // (columns of D, K, stages)
  using LayoutA = Layout<kMajorA, kWidth>;    // (rows of D, K, stages)
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float,
                                 cute::Shape<cute::Int<kColumns>, cute::Int<kWidth>, cute::Int<kDepth>>, kGmma<kMajorB>,
                                 kGmma<kMajorA>>(),
      cute::Layout<cute::Shape<cute::Int<kConsumers>, cute::_1, cute::_1>>{}));

  struct Shared {
    alignas(1024) Element b[kStages][kColumns * kDepth];
    alignas(1024) Element a[kStages][kWidth * kDepth];
    alignas(16) float sums[kWidth][kPitch];  // of this CTA's part of k: rows of D, which other CTAs read
    // full: the bytes have come. empty: each consumer warpgroup has read them.
    cutlass::arch::ClusterTransactionBarrier full[kStages];
    cutlass::arch::ClusterBarrier empty[kStages];
    // written: each CTA of the cluster has written its sums. read: each consumer warp of each has read those of this
    // one.
    std::uint64_t written, read;
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes == kTile.shared_bytes(kWidth));
};

}  // namespace falchion::sm90
