// src/sm90/attention_backward/config.hpp: tiles, layouts, barriers and shared memory of Hopper's backward kernels.
// docs/design/sm90_backward.md gives the reasons for the tiles and the order of the waits.
#pragma once

#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>

#include "gpu/attention_backward/tile.cuh"
#include "gpu/blocks/sm90_tma.cuh"
#include "tiles/attention_backward/sm90.hpp"
#include "tiles/attention_backward/workspace.hpp"

namespace falchion::sm90 {

using namespace gpu;

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;

/// Where a thread that adds dQ adds to. It lies in shared memory because the thread has few registers.
struct BackwardSums {
  float* sums;         // of row 0 of the first head
  unsigned* turns;     // of row 0 of the first head
  std::int64_t rows;   // from one head to the next
  std::int64_t since;  // a row sees no key before row + since
};

/// A tile of keys of a CTA. Consumers have no registers to spare for what they must know of it.
struct BackwardWork {
  BackwardTile tile;
  int first;   // the first tile of rows that the CTA visits in each head
  bool there;  // false: there are no more tiles
};

/// A CTA owns a tile of N keys x D head dims and visits tiles of M query rows. Each of its two consumer warpgroups has
/// 64 of the keys. It computes S^T = K Q^T and dP^T = V dO^T, whose rows are keys, so that P^T and dS^T are operands of
/// the next products in the registers where they were made. dS also goes through shared memory, because dQ = dS K needs
/// the keys of both warpgroups.
template <class Element_, int kD_>
struct AttentionBackwardConfig {
  using Element = Element_;
  static constexpr BackwardTiles kTile = attention_backward_tiles(kD_);
  static constexpr int kD = kD_, kRows = kTile.rows, kKeys = kTile.keys;
  static constexpr int kStagesQ = kTile.stages_q, kStagesGradO = kTile.stages_grad_o;
  static constexpr int kConsumers = BackwardTiles::kConsumers, kThreads = kTile.threads();
  static constexpr int kStagesDs = BackwardTiles::kStagesDs, kWorks = kTile.works();
  static constexpr bool kGoesOn = kTile.goes_on;
  static constexpr int kBarriersKeys = kTile.barriers_keys();
  static constexpr BackwardTurns kTurns = kTile.turns;
  static constexpr int kConsumerRegisters = kTile.consumer_registers, kProducerRegisters = kTile.producer_registers;
  static_assert(sizeof(BackwardWork) == BackwardTiles::kWorkBytes);
  static_assert(registers_fit(kConsumers, kConsumerRegisters, kProducerRegisters));
  static_assert(kStagesDs == 2, "the consumers find the previous tile of dS by stage ^ 1");
  static_assert(kKeys == 64 * kConsumers && (kRows == 64 || kRows == 128) && kD % 64 == 0);

  // dQ (M, D) is shared by the warpgroups: with 64 rows each makes half of the columns, with 128 rows half of the rows.
  static constexpr bool kByColumns = kRows == 64;
  static constexpr int kColumnsDq = kByColumns ? kD / kConsumers : kD;
  static constexpr int kSizeDq = 64 * kColumnsDq;  // f32 numbers of one warpgroup's part

  // A swizzled box has 64 columns of all rows of a tile: 128 bytes a row, whose 16-byte chunk c lies at c ^ (row % 8).
  static constexpr int kBox = 64, kBoxes = kD / kBox;
  using AtomK = cute::GMMA::Layout_K_SW128_Atom<Element>;
  using AtomMN = cute::GMMA::Layout_MN_SW128_Atom<Element>;
  template <int kLines>
  using Tile = decltype(cute::tile_to_shape(AtomK{}, cute::Shape<cute::Int<kLines>, cute::Int<kD>>{}));
  template <int kColumns, int kLines>
  using Transposed = decltype(cute::tile_to_shape(AtomMN{}, cute::Shape<cute::Int<kColumns>, cute::Int<kLines>>{},
                                                  cute::Step<cute::_2, cute::_1>{}));
  using LayoutK = Tile<kKeys>;                     // (N, D), of V too
  using LayoutKt = Transposed<kColumnsDq, kKeys>;  // (columns of dQ, N)
  using LayoutQ = decltype(cute::tile_to_shape(    // (M, D, stages), of dO too
      AtomK{}, cute::Shape<cute::Int<kRows>, cute::Int<kD>, cute::Int<kStagesQ>>{}));
  using LayoutQt = decltype(cute::tile_to_shape(  // (D, M, stages)
      AtomMN{}, cute::Shape<cute::Int<kD>, cute::Int<kRows>, cute::Int<kStagesQ>>{},
      cute::Step<cute::_2, cute::_1, cute::_3>{}));
  using LayoutDs = decltype(cute::tile_to_shape(  // (M, N, stages)
      AtomK{}, cute::Shape<cute::Int<kRows>, cute::Int<kKeys>, cute::Int<kStagesDs>>{}));

  static constexpr int kSizeK = kKeys * kD, kSizeQ = kRows * kD, kSizeDs = kRows * kKeys;  // elements
  struct Shared {
    alignas(1024) Element keys[2][kSizeK];               // K and V, (N, D); where CTAs go on they change places
    alignas(1024) Element q[kStagesQ][kSizeQ];           // (M, D)
    alignas(1024) Element grad_o[kStagesGradO][kSizeQ];  // (M, D)
    alignas(1024) Element ds[kStagesDs][kSizeDs];        // (M, N)
    alignas(1024) float dq[kConsumers][kSizeDq];         // in the order of the registers
    // The stage of a tile's Q has its other fields too.
    alignas(16) float lse[kStagesQ][kRows], delta[kStagesQ][kRows];
    int row0[kStagesQ];                 // the first row of the tile
    bool masked[kStagesQ][kConsumers];  // some pairs of its rows and a warpgroup's keys are masked
    BackwardWork work[kWorks];
    BackwardSums to_add[kConsumers];
    // full: the bytes have arrived. ready: masked-out lines have been cleared. empty: each consumer warp has read it.
    BarrierOfBytes full_keys[kBarriersKeys], full_rows[kStagesQ];
    Barrier ready_keys[kBarriersKeys], ready_rows[kStagesQ], empty_q[kStagesQ], empty_grad_o[kStagesGradO];
    Barrier full_ds[kStagesDs], empty_ds[kStagesDs];
    Barrier full_dq[kConsumers], empty_dq[kConsumers];
    Barrier full_work[kWorks], empty_work[kWorks], empty_keys[2];  // only used where CTAs go on

    FALCHION_DEVICE void init_barriers(bool wants_q) {
      constexpr int kWarps = 4 * kConsumers;
      for (int i = 0; i < kBarriersKeys; ++i) {
        full_keys[i].init(2 / kBarriersKeys);
        ready_keys[i].init(1);
      }
      for (int i = 0; i < kStagesQ; ++i) {
        full_rows[i].init(4);
        ready_rows[i].init(1);
        empty_q[i].init(kWarps);
      }
      for (int i = 0; i < kStagesGradO; ++i) empty_grad_o[i].init(kWarps);
      for (int i = 0; i < kStagesDs; ++i) {
        full_ds[i].init(kWarps);
        empty_ds[i].init(kWarps);
      }
      for (int i = 0; i < kConsumers; ++i) {
        full_dq[i].init(4);
        empty_dq[i].init(1);
      }
      if constexpr (kGoesOn) {
        for (int i = 0; i < 2; ++i) empty_keys[i].init(kWarps);
        for (int i = 0; i < kWorks; ++i) {
          full_work[i].init(1);
          empty_work[i].init(kWarps + 1 + (wants_q ? kConsumers : 0));  // and the loader, and those that add
        }
      }
    }
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes == kTile.shared_bytes() && kSharedBytes <= 227 * 1024);

  using Warpgroups = cute::Layout<cute::Shape<cute::Int<kConsumers>, cute::_1, cute::_1>>;
  using MmaScores = decltype(cute::make_tiled_mma(  // S^T = K Q^T, dP^T = V dO^T
      cute::GMMA::ss_op_selector<Element, Element, float,
                                 cute::Shape<cute::Int<kKeys>, cute::Int<kRows>, cute::Int<kD>>, cute::GMMA::Major::K,
                                 cute::GMMA::Major::K>(),
      Warpgroups{}));
  using MmaKeys = decltype(cute::make_tiled_mma(  // dV += P^T dO, dK += dS^T Q
      cute::GMMA::rs_op_selector<Element, Element, float,
                                 cute::Shape<cute::Int<kKeys>, cute::Int<kD>, cute::Int<kRows>>, cute::GMMA::Major::K,
                                 cute::GMMA::Major::MN>(),
      Warpgroups{}));
  using MmaRows = decltype(cute::make_tiled_mma(  // dQ = dS K
      cute::GMMA::ss_op_selector<Element, Element, float,
                                 cute::Shape<cute::Int<kRows>, cute::Int<kColumnsDq>, cute::Int<kKeys>>,
                                 cute::GMMA::Major::K, cute::GMMA::Major::MN>(),
      cute::Layout<cute::Shape<cute::Int<kRows / 64>, cute::_1, cute::_1>>{}));
};

}  // namespace falchion::sm90
