// src/sm90/gemm/config.hpp: tiles, layouts, barriers and shared memory of Hopper's GEMM kernels.
#pragma once

#include <cutlass/arch/barrier.h>
#include <cutlass/float8.h>

#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"
#include "sm90/gemm/operand.hpp"
#include "tiles/gemm/sm90.hpp"

namespace falchion::sm90 {

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;
using e4m3 = cutlass::float_e4m3_t;
using i8 = std::int8_t;
template <class Element>
inline constexpr GemmKind kTileKind = GemmKind::bits16;
template <>
inline constexpr GemmKind kTileKind<e4m3> = GemmKind::e4m3;
template <>
inline constexpr GemmKind kTileKind<i8> = GemmKind::i8;

/// A CTA has kRows rows of a tile, and all its columns. A block of k is 128 bytes. Consumer warpgroup w has the rows
/// from 64 w on, in each of kWaves waves of 64 kConsumers rows.
template <class Element_, Major kMajorA_, Major kMajorB_, VariantTile name>
struct GemmConfig {
  using Element = Element_;
  static constexpr Major kMajorA = kMajorA_, kMajorB = kMajorB_;
  static constexpr GemmTiles kTile = gemm_tiles(kTileKind<Element>, name);
  static constexpr int kRows = kTile.rows, kColumns = kTile.columns, kDepth = kTile.depth;
  static constexpr int kStages = kTile.stages, kCluster = kTile.cluster, kBoxes = kTile.boxes();
  static constexpr int kWaves = kTile.waves, kConsumers = kTile.consumers(), kThreads = 128 * (kConsumers + 1);
  static constexpr int kConsumerRegisters = kTile.consumer_registers, kProducerRegisters = kTile.producer_registers;
  using Sum = std::conditional_t<std::is_same_v<Element, i8>, std::int32_t, float>;
  static constexpr bool kPromoted = std::is_same_v<Element, e4m3>;  // the sum of each block of k is added in f32
  static constexpr int kNumbers = kWaves * kColumns / 2;            // sums of a lane
  static constexpr bool kScaled = sizeof(Element) == 1;             // rows of A and of B have scales
  // Columns of C or the residual in a stage of the ring: 64 in place of A, and 64 more where B has room for them.
  static constexpr int kAddendColumns = kColumns > 64 && kColumns >= kRows ? 128 : 64;
  // Rows of B in one box. Each CTA of a cluster loads some of the boxes, by multicast to all.
  static constexpr int kBoxRows = kMajorB == Major::k ? kColumns / kCluster : 64;
  static_assert(kDepth == 128 / static_cast<int>(sizeof(Element)) && kColumns % kBoxRows == 0 && kBoxRows % 8 == 0);

  /// The first column of a box of D. The last box ends with the tile: if that has half a box more than whole ones, some
  /// columns are in two boxes.
  static FALCHION_HD constexpr int box_column(int box, int width = 64) {
    return width * (box + 1) <= kColumns ? width * box : kColumns - width;
  }

  using LayoutA = OperandLayout<Element, kMajorA, kRows, kDepth, kStages>;     // (M, K, stages)
  using LayoutB = OperandLayout<Element, kMajorB, kColumns, kDepth, kStages>;  // (N, K, stages)
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, Sum, cute::Shape<cute::Int<kRows>, cute::Int<kColumns>, cute::_64>,
                                 kGmmaMajor<kMajorA>, kGmmaMajor<kMajorB>>(),
      cute::Layout<cute::Shape<cute::Int<kConsumers>, cute::_1, cute::_1>>{}));

  struct Shared {
    alignas(1024) Element a[kStages][kRows * kDepth];
    alignas(1024) Element b[kStages][kColumns * kDepth];
    alignas(1024) unsigned char out[4 * kConsumers][GemmTiles::kOutBytes];
    float of_columns[kConsumers][kColumns];  // scales, then biases
    // full: the bytes have arrived. empty: each consumer warpgroup of each CTA of the cluster has read them.
    cutlass::arch::ClusterTransactionBarrier full[kStages];
    cutlass::arch::ClusterBarrier empty[kStages];
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes == kTile.shared_bytes());

  /// The first of the 16 rows of a consumer warp in a wave.
  static FALCHION_HD constexpr int row_of(int wave, int warp) { return 64 * kConsumers * wave + 16 * warp; }
};

/// The byte of two neighbouring columns of a box of 32 columns of 4 bytes each, whose 16-byte chunks are swizzled.
FALCHION_HD constexpr int byte_of_pair(int row, int column) {
  return row * 128 + (column / 4 ^ row % 8) * 16 + column % 4 * 4;
}

}  // namespace falchion::sm90
