// src/sm90/gemm/few/config.hpp: layouts, barriers and shared memory of Hopper's GEMM kernel for few rows of A.
#pragma once

#include <cutlass/arch/barrier.h>

#include "sm90/gemm/operand.hpp"
#include "tiles/gemm/sm90_few.hpp"

namespace falchion::sm90 {

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;

/// A and B change places: the rows of the wgmma product are rows of B, and its columns, 8 or more, are the rows of A.
template <class Element_, Major kMajorA_, Major kMajorB_, int kWidth_>
struct GemmFewConfig {
  using Element = Element_;
  static constexpr Major kMajorA = kMajorA_, kMajorB = kMajorB_;
  static constexpr GemmFewTiles kTile = gemm_few_tiles();
  static constexpr int kWidth = kWidth_, kColumns = kTile.columns, kDepth = kTile.depth, kStages = kTile.stages;
  static constexpr int kConsumers = kTile.consumers(), kConsumerWarps = 4 * kConsumers, kThreads = kTile.threads();
  static constexpr int kPitch = kTile.pitch();
  static constexpr int kLineBytes = kDepth * 2;  // bytes of one row of an operand in a stage
  static_assert(kDepth == 64 && kWidth <= kTile.rows && kWidth % (kMajorA == Major::k ? 8 : 64) == 0);

  using LayoutB = OperandLayout<Element, kMajorB, kColumns, kDepth, kStages>;  // (columns of D, K, stages)
  using LayoutA = OperandLayout<Element, kMajorA, kWidth, kDepth, kStages>;    // (rows of D, K, stages)
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float,
                                 cute::Shape<cute::Int<kColumns>, cute::Int<kWidth>, cute::Int<kDepth>>,
                                 kGmmaMajor<kMajorB>, kGmmaMajor<kMajorA>>(),
      cute::Layout<cute::Shape<cute::Int<kConsumers>, cute::_1, cute::_1>>{}));

  struct Shared {
    alignas(1024) Element b[kStages][kColumns * kDepth];
    alignas(1024) Element a[kStages][kWidth * kDepth];
    alignas(16) float sums[kWidth][kPitch];  // of this CTA's part of k: rows of D, which other CTAs read
    // full: the bytes have arrived. empty: each consumer warpgroup has read them.
    cutlass::arch::ClusterTransactionBarrier full[kStages];
    cutlass::arch::ClusterBarrier empty[kStages];
    // written: each CTA of the cluster has written its sums. read: each consumer warp of each CTA has read the sums of
    // this one.
    std::uint64_t written, read;
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes == kTile.shared_bytes(kWidth));
};

}  // namespace falchion::sm90
