// src/sm90/attention_forward/fp8/config.hpp: layouts, barriers and shared memory of kind fp8, whose P V is in e4m3 and
// whose Q K^T is in e4m3 or int8. docs/design/sm90_fp8.md gives the reasons.
#pragma once

#include "sm90/attention_forward/config.hpp"
#include "tiles/attention_forward/turned_v.hpp"

namespace falchion::sm90 {

using e4m3 = cutlass::float_e4m3_t;

/// As AttentionForwardConfig, whose names it has. V comes turned: a stage has D rows of N keys, and below them eight
/// rows of ones, so that the product with P makes the sums of P's rows, too.
template <class Element_, int kD_>
struct Fp8Config {
  using Element = Element_;  // of Q and K
  using ElementQk = Element;
  using SumQk = std::conditional_t<std::is_same_v<Element, std::int8_t>, std::int32_t, float>;  // of S
  static constexpr Tile kTile = attention_forward_tile(Kind::fp8, kD_);
  static constexpr int kD = kD_, kDv = kD_;
  static constexpr int kRows = kTile.rows, kKeys = kTile.keys, kStages = kTile.stages, kStagesQ = kTile.stages_q();
  static constexpr int kTiles = Tile::kRecords, kCtas = kTile.ctas;
  static constexpr int kConsumers = kRows / 64, kThreads = kTile.threads(), kProducers = 1;
  static constexpr int kConsumerRegisters = kTile.consumer_registers, kProducerRegisters = kTile.producer_registers;
  static constexpr Turns kTurns = kTile.turns;
  static constexpr bool kPages = false, kScaled = true, kCutsPacked = true, kTurnedV = true, kNextKFirst = true;
  static constexpr int kOnes = Tile::kOnes;
  static constexpr int kBox = 128, kBoxes = kD / kBox;
  static_assert(kD == kBox && kKeys == kTurnedBlock, "a row of Q, K and V^T is one line of 128 bytes");

  template <class T>
  using Atom = cute::GMMA::Layout_K_SW128_Atom<T>;
  template <int kLines, int kDepth>
  using Stages = cute::Shape<cute::Int<kLines>, cute::Int<128>, cute::Int<kDepth>>;
  using LayoutQ = decltype(cute::tile_to_shape(Atom<Element>{}, Stages<kRows, kStagesQ>{}));     // (M, D, stages)
  using LayoutK = decltype(cute::tile_to_shape(Atom<Element>{}, Stages<kKeys, kStages>{}));      // (N, D, stages)
  using LayoutVt = decltype(cute::tile_to_shape(Atom<e4m3>{}, Stages<kDv + kOnes, kStages>{}));  // (D + 8, N, stages)

  static constexpr int kSizeQ = kRows * kD, kSizeK = kKeys * kD, kSizeV = kDv * kKeys, kSizeOnes = kOnes * kKeys;
  struct TurnedV {
    alignas(1024) e4m3 v[kSizeV];  // (D, N)
    e4m3 ones[kSizeOnes];
  };
  struct Shared {
    alignas(1024) Element q[kStagesQ][kSizeQ];  // (M, D)
    alignas(1024) Element k[kStages][kSizeK];   // (N, D)
    TurnedV v[kStages];
    TileRecord tile[kTiles];
    RowsRecord done[4 * kConsumers];
    cutlass::arch::ClusterTransactionBarrier full_q[kStagesQ], full_k[kStages], full_v[kStages];
    cutlass::arch::ClusterBarrier full_tile[kTiles], empty_tile[kTiles];
    cutlass::arch::ClusterBarrier wanted;
    cutlass::arch::ClusterBarrier empty_q[kStagesQ], empty_k[kStages], empty_v[kStages];
    std::uint32_t words[2][kStages];                  // the scales of K
    alignas(8) float row_units[128 * kConsumers][2];  // those of Q, of each thread's two rows
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes <= kTile.shared_limit());

  using Warpgroups = cute::Layout<cute::Shape<cute::Int<kConsumers>, cute::_1, cute::_1>>;
  using ShapeQk = cute::Shape<cute::Int<kRows>, cute::Int<kKeys>, cute::Int<kD>>;
  using MmaQk = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, SumQk, ShapeQk, cute::GMMA::Major::K, cute::GMMA::Major::K>(),
      Warpgroups{}));
  using MmaPv = decltype(cute::make_tiled_mma(cute::SM90::GMMA::MMA_64x136x32_F32E4M3E4M3_RS_TN<>{}, Warpgroups{}));
  using MmaOfRows = cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x16_F32BF16BF16F32_TN>,
                                   cute::Layout<cute::Shape<cute::Int<4 * kConsumers>, cute::_1, cute::_1>>>;
};

}  // namespace falchion::sm90
