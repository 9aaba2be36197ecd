// src/sm90/attention_forward/config.hpp: tiles, layouts, barriers and shared memory of Hopper's forward kernels.
// docs/design/sm90_forward.md gives the reasons for the tiles and the order of the waits.
#pragma once

#include <cutlass/arch/barrier.h>

#include <algorithm>

#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "tiles/attention_forward/sm90.hpp"

namespace falchion::sm90 {

using namespace gpu;

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;

/// The rows of O and LSE of a tile: all that the end of the tile needs. Each consumer warp keeps a copy of its own, so
/// that it can release its record of the ring before it waits for the next one. Holding one record while waiting for
/// another could deadlock.
struct RowsRecord {
  int b, h, split, row0, rows;
  Rows q;

  FALCHION_DEVICE AttentionTile read(const Divisors& by) const {
    return {b, h, 0, split, q, {}, row0, rows, 0, 0, 0, 0, {}, by};
  }
};

/// An AttentionTile in shared memory, where the scheduler writes it: consumers have no registers to spare for it.
struct TileRecord : RowsRecord {
  static constexpr int kNoMore = -1;  // row0 of the record that says that there are no more tiles
  Rows k;
  int begin, end, unmasked_begin, unmasked_end;
  BandMask mask;

  FALCHION_DEVICE void write_rows(const AttentionTile& t) {
    b = t.b;
    h = t.h;
    split = t.split;
    row0 = t.row0;
    rows = t.rows;
    q = t.q;
  }
  FALCHION_DEVICE void write_keys(const AttentionTile& t) {
    k = t.k;
    begin = t.begin;
    end = t.end;
    unmasked_begin = t.unmasked_begin;
    unmasked_end = t.unmasked_end;
    mask = t.mask;
  }
  FALCHION_DEVICE AttentionTile read(const Divisors& by) const {
    return {b, h, 0, split, q, k, row0, rows, begin, end, unmasked_begin, unmasked_end, mask, by};
  }
  /// How many of the last tiles of keys the rows before row0 + count do not see. At least one tile counts as seen.
  template <int kKeys>
  FALCHION_DEVICE int unseen(const Divisors& by, int count) const {
    const int last = min(row0 + count, rows) - 1;
    const int seen = static_cast<int>(max(mask.visible(0, by.group.div(last) + 1).end, std::int64_t{0}));
    return min(max(end - (seen + kKeys - 1) / kKeys, 0), end - begin - 1);
  }
};

/// A tile has M query rows x N keys x D head dims. Each consumer warpgroup owns 64 of the rows, from Q to O. The last
/// warpgroup has the scheduler warp and the producer.
template <class Element_, int kD_, Kind kind, VariantTile name = VariantTile::usual>
struct AttentionForwardConfig {
  using Element = Element_;                                                                       // of V, P and O
  using ElementQk = std::conditional_t<kind == Kind::int8_scores, std::int8_t, Element>;          // of Q and K
  using SumQk = std::conditional_t<std::is_same_v<ElementQk, std::int8_t>, std::int32_t, float>;  // of S
  static constexpr Tile kTile = attention_forward_tile(kind, kD_, name);
  static constexpr int kD = kD_, kDv = kTile.d_v();  // head dim of Q and K; of V and O
  // One row of Q and K (kWidth) and one row of V (kWidthV) in shared memory, in elements: first all high parts, then
  // all low ones.
  static constexpr int kParts = kTile.parts(), kWidth = kParts * kD, kWidthV = kParts * kDv;
  static constexpr int kColumns = kTile.columns();  // of O, that one product P V makes
  static constexpr int kRows = kTile.rows, kKeys = kTile.keys, kStages = kTile.stages;
  static constexpr int kCtas = kTile.ctas;  // how many share an SM
  static constexpr int kConsumers = kRows / 64, kThreads = kTile.threads();
  static constexpr int kConsumerRegisters = kTile.consumer_registers, kProducerRegisters = kTile.producer_registers;
  static constexpr Turns kTurns = kTile.turns;
  static constexpr int kEarly = kTile.early;
  static constexpr bool kPages = kind == Kind::pages;
  static constexpr bool kScaled = kind == Kind::int8_scores;  // Q and K may have scales
  static constexpr bool kCutsPacked = kPages || kScaled;      // the keys of packed rows may be cut into parts, too
  static constexpr bool kTurnedV = false;                     // V comes as V^T
  static constexpr int kProducers = kPages ? 2 : 1;           // that read a record
  static constexpr int kEntryRegisters = std::min(65536 / kCtas / kThreads / 8 * 8, 168);
  static_assert(kConsumers * kConsumerRegisters + kProducerRegisters <= (kConsumers + 1) * kEntryRegisters);
  // K of the next tile of keys is loaded before V of this one, because S of the next tile runs under the softmax of
  // this one. Kind halves has no registers for two tiles at a time.
  static constexpr bool kNextKFirst = kParts == 1;
  // Under a band the first warpgroup skips tiles of keys that the last one multiplies. It releases K of all of them
  // before V of the first, so they must fit into the ring.
  static_assert((kRows - 64 + kKeys - 1) / kKeys <= kStages || kConsumers == 1 || !kNextKFirst);
  static_assert(kD % 32 == 0 && kRows % 64 == 0 && kKeys % 16 == 0 && kKeys <= 256);

  // A swizzled TMA box is at most 128 bytes wide. So it has 128 bytes of all rows of a tile, or 64 where the rows are
  // no multiple of 128. The 16-byte chunk c of row r lies at c ^ (r % 8), or at c ^ (r / 2 % 4) in rows of 64 bytes,
  // and wgmma reads that without bank conflicts. V is read transposed, but it is never stored so.
  static constexpr int kStagesQ = kTile.stages_q();
  static constexpr int kTiles = Tile::kRecords;
  template <class T>
  static constexpr int columns_of_box(int d) {
    return (d * sizeof(T) % 128 == 0 ? 128 : 64) / static_cast<int>(sizeof(T));
  }
  static constexpr int kBox = columns_of_box<ElementQk>(kD), kBoxV = columns_of_box<Element>(kDv);
  static_assert(!kPages || (kBox == 64 && kBoxV == 64 && (kKeys & (kKeys - 1)) == 0 && kKeys <= kLeastPiece * 32));
  static constexpr int kBoxes = kWidth / kBox;
  static constexpr int kBoxesV = kWidthV / kBoxV;
  using AtomK = std::conditional_t<kBox * sizeof(ElementQk) == 128, cute::GMMA::Layout_K_SW128_Atom<ElementQk>,
                                   cute::GMMA::Layout_K_SW64_Atom<ElementQk>>;
  using AtomMN = std::conditional_t<kBoxV * sizeof(Element) == 128, cute::GMMA::Layout_MN_SW128_Atom<Element>,
                                    cute::GMMA::Layout_MN_SW64_Atom<Element>>;
  template <class Rows>
  using Stages = cute::Shape<Rows, cute::Int<kWidth>, cute::Int<kStages>>;
  using LayoutQ = decltype(cute::tile_to_shape(  // (M, D, stages)
      AtomK{}, cute::Shape<cute::Int<kRows>, cute::Int<kWidth>, cute::Int<kStagesQ>>{}));
  using LayoutK = decltype(cute::tile_to_shape(AtomK{}, Stages<cute::Int<kKeys>>{}));  // (N, D, stages)
  using LayoutVt =                                                                     // (D, N, stages)
      decltype(cute::tile_to_shape(AtomMN{}, cute::Shape<cute::Int<kWidthV>, cute::Int<kKeys>, cute::Int<kStages>>{},
                                   cute::Step<cute::_2, cute::_1, cute::_3>{}));

  // The same for one part of one stage, and for the columns of V that one product takes.
  using PartOfQ = decltype(cute::tile_to_shape(AtomK{}, cute::Shape<cute::Int<kRows>, cute::Int<kD>>{}));  // (M, D)
  using PartOfK = decltype(cute::tile_to_shape(AtomK{}, cute::Shape<cute::Int<kKeys>, cute::Int<kD>>{}));  // (N, D)
  using ColumnsOfVt =                                                                                      // (C, N)
      decltype(cute::tile_to_shape(AtomMN{}, cute::Shape<cute::Int<kColumns>, cute::Int<kKeys>>{},
                                   cute::Step<cute::_2, cute::_1>{}));

  static constexpr int kSizeQ = kRows * kWidth, kSizeK = kKeys * kWidth, kSizeV = kKeys * kWidthV;  // elements
  struct Shared {
    alignas(1024) ElementQk q[kStagesQ][kSizeQ];  // (M, D)
    alignas(1024) ElementQk k[kStages][kSizeK];   // (N, D)
    alignas(1024) Element v[kStages][kSizeV];     // (N, D)
    TileRecord tile[kTiles];
    RowsRecord done[4 * kConsumers];  // for each consumer warp, the tile whose O it has yet to store
    // full: the bytes or the record have arrived. empty: each consumer warp (and the producer, for a record) has read
    // them.
    cutlass::arch::ClusterTransactionBarrier full_q[kStagesQ], full_k[kStages], full_v[kStages];
    cutlass::arch::ClusterBarrier full_tile[kTiles], empty_tile[kTiles];
    cutlass::arch::ClusterBarrier wanted;  // the producer wants the next record
    cutlass::arch::ClusterBarrier empty_q[kStagesQ], empty_k[kStages], empty_v[kStages];
    // A word that comes with a tile of K. Kind pages: which keys are in pages that are not there, a bit for each
    // kLeastPiece keys. Kind int8_scores: the scale. Each stage has two words, for its rounds in turn, so a warp may
    // read its word after it has released the stage.
    std::uint32_t words[2][kStages];
  };
  static_assert(sizeof(TileRecord) == Tile::kRecordBytes && sizeof(RowsRecord) == Tile::kRowsRecordBytes);
  static_assert(sizeof(cutlass::arch::ClusterBarrier) == Tile::kBarrierBytes);
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes <= kTile.shared_limit());

  // S = Q K^T has both operands in shared memory, O += P V has P in registers, and both have 32-bit accumulators.
  template <int kN>
  using ShapeOf = cute::Shape<cute::Int<kRows>, cute::Int<kN>, cute::Int<kD>>;
  using Warpgroups = cute::Layout<cute::Shape<cute::Int<kConsumers>, cute::_1, cute::_1>>;
  using MmaQk = decltype(cute::make_tiled_mma(cute::GMMA::ss_op_selector<ElementQk, ElementQk, SumQk, ShapeOf<kKeys>,
                                                                         cute::GMMA::Major::K, cute::GMMA::Major::K>(),
                                              Warpgroups{}));
  using MmaPv = decltype(cute::make_tiled_mma(cute::GMMA::rs_op_selector<Element, Element, float, ShapeOf<kColumns>,
                                                                         cute::GMMA::Major::K, cute::GMMA::Major::MN>(),
                                              Warpgroups{}));
  // The accumulator of wgmma m64nN has the register layout of mma m16n8 with 4 warps of 16 rows each, one below the
  // other. So the code for such fragments (softmax, mask, store) works on these too.
  using MmaOfRows = cute::TiledMMA<cute::MMA_Atom<cute::SM80_16x8x16_F32BF16BF16F32_TN>,
                                   cute::Layout<cute::Shape<cute::Int<4 * kConsumers>, cute::_1, cute::_1>>>;
};

}  // namespace falchion::sm90
