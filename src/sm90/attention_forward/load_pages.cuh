// src/sm90/attention_forward/load_pages.cuh: the producers of kind pages. They load Q, K and V as that of load.cuh
// does, but K and V from the pages of a cache. docs/design/sm90_forward.md, "Pages", has the reasons.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tma.cuh"
#include "sm90/attention_forward/config.hpp"
#include "sm90/attention_forward/load.cuh"
#include "sm90/attention_forward/pieces.hpp"

namespace falchion::sm90 {

/// A producer, one warp: of Q and K, or (kOfV) of V. Lane i has piece i of each tile of keys: it looks up where the
/// piece lies, while the tile before is loaded, and issues the loads of it. The first lane waits for the stages.
/// Nothing may be computed from what a look finds before it is needed, since the warp would wait there.
template <class Config, bool kOfV>
class PageProducer {
  using Element = typename Config::Element;
  using Shared = typename Config::Shared;
  static constexpr int kKeys = Config::kKeys, kNear = Tile::kNear;

 public:
  FALCHION_DEVICE PageProducer(const AttentionArgs& a, const Divisors& by, const TensorMaps& maps, Shared& shared)
      : a(a), by(by), maps(maps), shared(shared), lane(static_cast<int>(threadIdx.x) % 32) {}

  FALCHION_DEVICE void run() {
    for (;;) {
      shared.full_tile[at_tile.stage].wait(at_tile.parity);
      asm volatile("" ::: "memory");  // the record is read after that
      const TileRecord& tile = shared.tile[at_tile.stage];
      if (tile.row0 < 0) break;
      const int count = tile.end - tile.begin;
      if (count <= kNear) want_next();
      if (count > 0) {
        if constexpr (!kOfV) load_q(tile);
        load_keys(tile, count);
      }
      __syncwarp();  // all lanes have read the record, and none is a round behind
      if (leads()) shared.empty_tile[at_tile.stage].arrive();
      at_tile.advance();
    }
  }

 private:
  FALCHION_DEVICE bool leads() const { return lane == 0; }
  FALCHION_DEVICE void want_next() const {
    if (!kOfV && leads()) shared.wanted.arrive();
  }

  FALCHION_DEVICE void load_q(const TileRecord& tile) {
    if (leads()) {
      shared.empty_q[at_q.stage].wait(at_q.parity ^ 1);
      load_boxes<Config::kBoxes, Config::kBox>(maps.q, shared.full_q[at_q.stage], shared.q[at_q.stage], kReadOnce,
                                               tile.h, static_cast<int>(tile.q.begin) + by.group.div(tile.row0),
                                               static_cast<int>(tile.q.batch));
    }
    at_q.advance();
  }
  /// Loads `count` tiles of keys, from the last to the first.
  FALCHION_DEVICE void load_keys(const TileRecord& tile, int count) {
    const KeyPiece piece = KeyPiece::of(a.pages, tile.b, tile.k.begin, tile.k.length, lane, kKeys);
    const int head = by.ratio.div(tile.h);
    int key = (tile.end - 1) * kKeys + piece.first;
    KeyRows::Look now = piece.look(key);
    CUTE_NO_UNROLL
    for (int n = count; n > 0; --n, key -= kKeys) {
      if (n == kNear && count > kNear) want_next();
      const KeyRows::Look next = n > 1 ? piece.look(key - kKeys) : now;
      if constexpr (kOfV) {
        if (leads()) shared.empty_v[at.stage].wait(at.parity ^ 1);
        load_piece<Config::kBoxesV>(maps.v, shared.full_v[at.stage], shared.v[at.stage], piece.first, head,
                                    piece.page(now), static_cast<int>(now.row));
      } else {
        const unsigned holes = __reduce_or_sync(~0U, piece.holes(key, now));
        if (leads()) {
          shared.empty_k[at.stage].wait(at.parity ^ 1);
          store_holes(holes);
        }
        load_piece<Config::kBoxes>(maps.k, shared.full_k[at.stage], shared.k[at.stage], piece.first, head,
                                   piece.page(now), static_cast<int>(now.row));
      }
      at.advance();
      now = next;
    }
  }
  FALCHION_DEVICE void store_holes(unsigned holes) const {
    const std::uint32_t to = cute::cast_smem_ptr_to_uint(&shared.words[at.parity][at.stage]);
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(holes) : "memory");
  }
  /// Loads a tile of K or V, each lane its piece, if it has one: to its lines of each box of the tile. page, row: where
  /// the piece lies. A page of -1 is outside of the tensor, so TMA makes the piece 0. ptxas makes a loop of the lanes
  /// of each load, of 9 instructions a lane.
  template <int kBoxes, int kSize>
  FALCHION_DEVICE void load_piece(const CUtensorMap& map, cutlass::arch::ClusterTransactionBarrier& full,
                                  Element (&to)[kSize], int first, int head, int page, int row) const {
    if (leads()) full.arrive_and_expect_tx(kSize * sizeof(Element));
    __syncwarp();  // the stage is free
    if (first >= kKeys) return;
    CUTE_UNROLL
    for (int box = 0; box < kBoxes; ++box)
      cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadAgain,
                                   to + box * (kSize / kBoxes) + first * Config::kBox, Config::kBox * box, head, row,
                                   page);
  }

  const AttentionArgs& a;
  const Divisors& by;
  const TensorMaps& maps;
  Shared& shared;
  const int lane;
  RingPosition<Config::kStages> at;  // of K, or of V
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kTiles> at_tile;
};

}  // namespace falchion::sm90
