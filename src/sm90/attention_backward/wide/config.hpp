// src/sm90/attention_backward/wide/config.hpp: tiles, layouts, barriers and shared memory of Hopper's backward kernel
// for head dims above 128. docs/design/sm90_backward.md gives the reasons for the tiles and the order of the waits.
#pragma once

#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>

#include "gpu/attention_backward/tile.cuh"
#include "gpu/blocks/sm90_tma.cuh"
#include "sm90/attention_backward/config.hpp"
#include "tiles/attention_backward/sm90_wide.hpp"
#include "tiles/attention_backward/workspace.hpp"

namespace falchion::sm90 {

/// Every tile is 64 lines x D head dims, and every product of a warpgroup is one of two: scores (64, 64) of two tiles,
/// or a gradient (64, D) of a factor in registers and a tile.
template <class Element_, int kD_>
struct WideConfig {
  using Element = Element_;
  static constexpr WideTiles kTile = attention_backward_wide_tiles(kD_);
  static constexpr int kD = kD_, kLines = WideTiles::kLines, kConsumers = WideTiles::kConsumers;
  static constexpr int kRows = kTile.rows(), kKeys = kTile.keys(), kThreads = kTile.threads();
  static constexpr int kStagesQ = kTile.stages_q, kStagesO = kTile.stages_grad_o, kStagesKv = kTile.stages_kv;
  static constexpr int kStagesP = WideTiles::kStagesP;
  static constexpr int kConsumerRegisters = kTile.consumer_registers, kProducerRegisters = kTile.producer_registers;
  static_assert(registers_fit(kConsumers, kConsumerRegisters, kProducerRegisters));

  // A swizzled box has 64 columns of all lines of a tile: 128 bytes a line, whose 16-byte chunk c lies at c ^ (line %
  // 8). The last boxes of K and V are held in registers, since a product with both factors in shared memory is limited
  // by the bandwidth of shared memory.
  static constexpr int kBox = 64, kBoxes = kD / kBox, kHeld = kTile.held, kBoxesHere = kBoxes - kHeld;
  static constexpr int kSizeBox = kLines * kBox, kSize = kBoxes * kSizeBox;  // elements
  static constexpr int kStepsHere = kBoxesHere * 4, kStepsHeld = kHeld * 4;  // of 16 columns
  static_assert(kD % kBox == 0 && kBoxesHere > 0 && 2 * kHeld <= kBoxes);
  using AtomK = cute::GMMA::Layout_K_SW128_Atom<Element>;
  using AtomMN = cute::GMMA::Layout_MN_SW128_Atom<Element>;
  template <int kColumns>
  using Tile = decltype(cute::tile_to_shape(AtomK{}, cute::Shape<cute::Int<kLines>, cute::Int<kColumns>>{}));
  using LayoutWhole = Tile<kD>;                           // (lines, D)
  using LayoutHere = Tile<kBoxesHere * kBox>;             // (lines, columns that are not held)
  using LayoutTransposed = decltype(cute::tile_to_shape(  // (D, lines)
      AtomMN{}, cute::Shape<cute::Int<kD>, cute::Int<kLines>>{}, cute::Step<cute::_2, cute::_1>{}));

  /// Shared memory of a CTA that owns keys. Warpgroup 0 has grad_v and needs K, warpgroup 1 has grad_k and needs V.
  struct KeysShared {
    alignas(1024) Element own[kConsumers][kBoxesHere * kSizeBox];  // K, V
    alignas(1024) Element q[kStagesQ][kSize];
    alignas(1024) Element grad_o[kStagesO][kSize];
    alignas(1024) uint4 p[kStagesP][4][128];  // P^T, rounded, in the order of the registers
    alignas(16) float lse[kStagesQ][kLines], delta[kStagesQ][kLines];
    bool dead[kStagesQ];  // some row is outside its sequence
    BackwardTile tile;    // consumers have no registers to spare for it
    // full: the bytes have arrived. ready: masked-out lines have been cleared. empty: each consumer warp has read it.
    BarrierOfBytes full_own[kConsumers], full_q[kStagesQ], full_grad_o[kStagesO];
    Barrier ready_q[kStagesQ], ready_grad_o[kStagesO], empty_q[kStagesQ], empty_grad_o[kStagesO];
    Barrier full_p[kStagesP], empty_p[kStagesP];
  };
  // The boxes that will be held in registers are loaded into the space of the last stage of q.
  static_assert(kConsumers * kHeld * kSizeBox <= kSize && kStagesQ >= 2);

  /// Shared memory of a CTA that owns rows. Each warpgroup has one tile of them. Tiles of V and K alternate in the same
  /// stages.
  struct RowsShared {
    alignas(1024) Element q[kConsumers][kSize];
    alignas(1024) Element grad_o[kConsumers][kSize];
    alignas(1024) Element kv[kStagesKv][kSize];
    BackwardTile tile;
    BarrierOfBytes full_q, full_grad_o, full_kv[kStagesKv];
    Barrier empty_kv[kStagesKv];
  };
  static_assert(sizeof(KeysShared) == kTile.keys_bytes() && sizeof(RowsShared) == kTile.rows_bytes());
  static constexpr int kSharedBytes = kTile.shared_bytes();
  static_assert(kSharedBytes <= 227 * 1024);

  template <class Atom>
  using OfAWarpgroup = decltype(cute::make_tiled_mma(Atom{}));
  using ShapeScores = cute::Shape<cute::Int<kLines>, cute::Int<kLines>, cute::Int<kD>>;
  using MmaScores = OfAWarpgroup<decltype(cute::GMMA::ss_op_selector<Element, Element, float, ShapeScores>())>;
  using MmaHeld = OfAWarpgroup<decltype(cute::GMMA::rs_op_selector<Element, Element, float, ShapeScores>())>;
  using MmaGradient =
      OfAWarpgroup<decltype(cute::GMMA::rs_op_selector<Element, Element, float,
                                                       cute::Shape<cute::Int<kLines>, cute::Int<kD>, cute::Int<kLines>>,
                                                       cute::GMMA::Major::K, cute::GMMA::Major::MN>())>;
};

}  // namespace falchion::sm90
