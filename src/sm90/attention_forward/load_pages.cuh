// src/sm90/attention_forward/load_pages.cuh: the producer of kind pages. It loads Q, K and V as that of load.cuh does,
// but K and V from the pages of a cache. docs/design/sm90_forward.md, "Pages", has the order of its steps.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tma.cuh"
#include "sm90/attention_forward/config.hpp"
#include "sm90/attention_forward/load.cuh"
#include "sm90/attention_forward/pieces.hpp"

namespace falchion::sm90 {

/// The producer, one warp. Lane i looks up where piece i of a tile of keys lies, one tile before that tile is loaded,
/// so that no load waits for the table. The first lane waits for the stages and issues the loads. It follows the
/// producer of load.cuh step by step; the record, the stages and `wanted` are given back at the same places.
template <class Config>
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
      if (tile.end - tile.begin <= kNear) want_next();
      if (tile.begin < tile.end) load(tile);
      __syncwarp();  // all lanes have read the record, and none is a round behind
      if (leads()) shared.empty_tile[at_tile.stage].arrive();
      at_tile.advance();
    }
  }

 private:
  FALCHION_DEVICE bool leads() const { return lane == 0; }
  FALCHION_DEVICE void want_next() const {
    if (leads()) shared.wanted.arrive();
  }

  FALCHION_DEVICE void load(const TileRecord& tile) {
    load_q(tile);
    head = by.ratio.div(tile.h);
    int n = tile.end - 1;
    KeyPiece now = look_up(tile, n), next = look_up(tile, n - 1);
    load_k(now);
    CUTE_NO_UNROLL
    for (; n > tile.begin; --n) {
      if (n - tile.begin == kNear) want_next();
      load_k(next);  // of tile n - 1
      load_v(now);   // of tile n
      now = next;
      next = look_up(tile, n - 2);
    }
    load_v(now);
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
  FALCHION_DEVICE void load_k(const KeyPiece& mine) {
    const unsigned holes = __reduce_or_sync(~0U, mine.holes(lane, piece()));
    if (leads()) {
      shared.empty_k[at_k.stage].wait(at_k.parity ^ 1);
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(cute::cast_smem_ptr_to_uint(&shared.holes[at_k.parity][at_k.stage])),
                   "r"(holes)
                   : "memory");
    }
    load_pieces<Config::kBoxes>(maps.k, shared.full_k[at_k.stage], shared.k[at_k.stage], mine);
    at_k.advance();
  }
  FALCHION_DEVICE void load_v(const KeyPiece& mine) {
    if (leads()) shared.empty_v[at_v.stage].wait(at_v.parity ^ 1);
    load_pieces<Config::kBoxesV>(maps.v, shared.full_v[at_v.stage], shared.v[at_v.stage], mine);
    at_v.advance();
  }

  /// The keys of a piece.
  FALCHION_DEVICE int piece() const { return keys_of_piece(a.pages.size, kKeys); }
  /// This lane's piece of tile t. Neither a key past the sequence nor one before the first tile is asked for.
  FALCHION_DEVICE KeyPiece look_up(const TileRecord& tile, int t) const {
    const int in_tile = lane * piece(), key = t * kKeys + in_tile;
    if (t < tile.begin || in_tile >= kKeys) return {};
    return KeyPiece::of(a.pages, tile.b, tile.k.begin, tile.k.length, key);
  }
  /// Loads a tile of K or V. Each piece goes to its lines of each box of the tile. A page of -1 is outside of the
  /// tensor, so TMA makes the piece 0.
  template <int kBoxes, int kSize>
  FALCHION_DEVICE void load_pieces(const CUtensorMap& map, cutlass::arch::ClusterTransactionBarrier& full,
                                   Element (&to)[kSize], const KeyPiece& mine) const {
    if (leads()) full.arrive_and_expect_tx(kSize * sizeof(Element));
    const int keys = piece();
    CUTE_NO_UNROLL
    for (int first = 0, i = 0; first < kKeys; first += keys, ++i) {
      const int page = __shfl_sync(~0U, mine.page, i), row = __shfl_sync(~0U, mine.row, i);
      if (!leads()) continue;
      CUTE_UNROLL
      for (int box = 0; box < kBoxes; ++box)
        cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadAgain,
                                     to + box * (kSize / kBoxes) + first * Config::kBox, Config::kBox * box, head, row,
                                     page);
    }
  }

  const AttentionArgs& a;
  const Divisors& by;
  const TensorMaps& maps;
  Shared& shared;
  const int lane;
  int head = 0;  // of K and V
  RingPosition<Config::kStages> at_k, at_v;
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kTiles> at_tile;
};

}  // namespace falchion::sm90
