// src/sm90/attention_forward/load.cuh: the two roles of softmax attention on Hopper that feed the consumers of
// kernel.cuh: the scheduler warp works out the tiles of the CTA, and the producer thread loads Q, K and V of each into
// shared memory.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/sm90_tma.cuh"
#include "gpu/blocks/tile_counter.cuh"
#include "sm90/attention_forward/config.hpp"
#include "sm90/attention_forward/scales.cuh"
#include "sm90/attention_forward/schedule.hpp"
#include "tiles/attention_forward/turned_v.hpp"

namespace falchion::sm90 {

using namespace gpu;

struct TensorMaps {
  CUtensorMap q, k, v;
};

/// gridDim.x. The asm makes the compiler read it each time instead of keeping it in a register.
FALCHION_DEVICE int grid_size() {
  int ctas;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(ctas));
  return ctas;
}

static_assert(sizeof(TileCounter) == gpu::kTileCounterBytes);

/// The places of this CTA's tiles in the order of the schedule. The first place is the CTA's index. After that each CTA
/// draws from a counter, if there is one; otherwise it takes every gridDim.x-th place.
class Places {
 public:
  FALCHION_DEVICE Places(const AttentionArgs& a, const Schedule& schedule, std::uint64_t launch)
      : counted_(a.counter != nullptr),
        draw_(static_cast<TileCounter*>(a.counter), launch, static_cast<std::uint32_t>(schedule.items)) {
    if (counted_ && threadIdx.x % 32 == 0) draw_.open();
  }
  /// A whole warp must call it. The sum is unsigned, because past the last place it may exceed an int.
  FALCHION_DEVICE std::uint32_t next() {
    const auto ctas = static_cast<std::uint32_t>(grid_size());
    if (counted_ && place_ != kNothingYet) {
      std::uint32_t drawn = 0;
      if (threadIdx.x % 32 == 0) drawn = draw_.draw();
      return place_ = ctas + __shfl_sync(~0u, drawn, 0);
    }
    return place_ = place_ == kNothingYet ? blockIdx.x : place_ + ctas;
  }

 private:
  static constexpr std::uint32_t kNothingYet = ~0u;
  std::uint32_t place_ = kNothingYet;
  bool counted_;
  TileDraw draw_;
};

/// The scheduler, one warp. It works out the tiles of this CTA and writes a record of each for the producer and the
/// consumers: first the rows and then the keys, and then it signals full_tile. The last record means that there are no
/// more tiles. Before it works out the next tile it waits until the producer wants one (`wanted`): a CTA that drew its
/// tiles earlier would hold back a long one while other CTAs are idle.
template <class Config>
FALCHION_DEVICE void plan_tiles(const AttentionArgs& a, const Divisors& by, const Schedule& schedule,
                                std::uint64_t launch, typename Config::Shared& shared) {
  RingPosition<Config::kTiles> at;
  Places places(a, schedule, launch);
  const bool leader = threadIdx.x % 32 == 0;
  unsigned wanted = 0;
  CUTE_NO_UNROLL
  for (bool more = true; more;) {
    const std::uint32_t place = places.next();
    more = place < static_cast<std::uint32_t>(schedule.items);
    // Hides that `now` is the same for each tile. Otherwise the compiler computes everything that depends on the
    // arguments alone before the loop and keeps it in registers, of which this warp has few.
    const AttentionArgs* now = &a;
    asm volatile("" : "+l"(now));
    const int item = more ? schedule.at(static_cast<int>(place)) : 0;
    const AttentionTile rows = AttentionTile::rows_of<Config::kRows>(*now, by, item);
    if (more && rows.row0 >= rows.rows) continue;
    TileRecord& tile = shared.tile[at.stage];
    shared.empty_tile[at.stage].wait(at.parity ^ 1);
    __syncwarp();  // all lanes see that the record is free
    if (leader) {
      tile.write_rows(rows);
      asm volatile("" ::: "memory");  // the rows are read back from the record instead of being kept in registers
      AttentionTile t = tile.read(by);
      t.look<Config::kRows, Config::kKeys, Config::kPages>(*now);
      tile.write_keys(t);
      if (!more) tile.row0 = TileRecord::kNoMore;
      shared.full_tile[at.stage].arrive();
    }
    at.advance();
    if (more) shared.wanted.wait(wanted);
    __syncwarp();  // no lane may fall two rounds behind: the parity would be the same again, and it would wait for ever
    wanted ^= 1;
  }
}

/// Kind fp8: V^T of the keys from `row` on. Its map has the coordinates (key, column of V, head, sequence).
template <class Config, class Element, int kSize>
FALCHION_DEVICE void load_turned_v(const AttentionArgs& a, const CUtensorMap& map, const TileRecord& tile, int head,
                                   int row, cutlass::arch::ClusterTransactionBarrier& full, Element (&to)[kSize]) {
  const auto begin = static_cast<int>(tile.k.begin);
  const int first = a.packed ? static_cast<int>(turned_block_of(begin, tile.b)) * kTurnedBlock : 0;
  full.arrive_and_expect_tx(kSize);
  cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadAgain, to, first + row - begin, 0,
                               head, static_cast<int>(tile.k.batch));
}

/// The producer, one thread. For each record (full_tile) it loads Q of the tile and then K and V of its tiles of keys,
/// from the last to the first, because only the last may be ragged. It waits for each stage to be free (empty_q,
/// empty_k, empty_v) and releases the record at the end. When only kNear tiles of keys are left to load, it requests
/// the next record, which takes the scheduler some 2 us. V of a tile of keys is loaded after K of the next one where
/// the consumers need S of the next tile first (kNextKFirst).
template <class Config>
FALCHION_DEVICE void produce(const AttentionArgs& a, const Divisors& by, const TensorMaps& maps,
                             typename Config::Shared& shared) {
  constexpr int kKeys = Config::kKeys, kNear = Tile::kNear;
  RingPosition<Config::kStages> at_k, at_v;
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kTiles> at_tile;
  for (;; shared.empty_tile[at_tile.stage].arrive(), at_tile.advance()) {
    shared.full_tile[at_tile.stage].wait(at_tile.parity);
    const TileRecord& tile = shared.tile[at_tile.stage];
    if (tile.row0 < 0) break;
    int n = tile.end - tile.begin;
    if (n <= kNear) shared.wanted.arrive();
    if (n <= 0) continue;
    const auto load_q = [&](int row) {
      shared.empty_q[at_q.stage].wait(at_q.parity ^ 1);
      load_boxes<Config::kBoxes, Config::kBox>(maps.q, shared.full_q[at_q.stage], shared.q[at_q.stage], kReadOnce,
                                               tile.h, row, static_cast<int>(tile.q.batch));
      at_q.advance();
    };
    const int head = by.ratio.div(tile.h), batch = static_cast<int>(tile.k.batch);
    const int first_row = static_cast<int>(tile.k.begin) + tile.begin * kKeys;
    std::conditional_t<Config::kScaled, KeyTileUnits<Config>, NoKeyTileUnits> unit(a, tile, head);
    const auto load_k = [&](int row) {
      shared.empty_k[at_k.stage].wait(at_k.parity ^ 1);
      if constexpr (Config::kScaled) store_word(shared.words[at_k.parity][at_k.stage], unit.take(row > first_row));
      load_boxes<Config::kBoxes, Config::kBox>(maps.k, shared.full_k[at_k.stage], shared.k[at_k.stage], kReadAgain,
                                               head, row, batch);
      at_k.advance();
    };
    const auto load_v = [&](int row) {
      shared.empty_v[at_v.stage].wait(at_v.parity ^ 1);
      if constexpr (Config::kTurnedV)
        load_turned_v<Config>(a, maps.v, tile, head, row, shared.full_v[at_v.stage], shared.v[at_v.stage].v);
      else
        load_boxes<Config::kBoxesV, Config::kBoxV>(maps.v, shared.full_v[at_v.stage], shared.v[at_v.stage], kReadAgain,
                                                   head, row, batch);
      at_v.advance();
    };
    load_q(static_cast<int>(tile.q.begin) + by.group.div(tile.row0));
    int row = static_cast<int>(tile.k.begin) + (tile.end - 1) * kKeys;
    load_k(row);
    CUTE_NO_UNROLL
    for (; --n > 0; row -= kKeys) {
      if (n == kNear) shared.wanted.arrive();
      if constexpr (!Config::kNextKFirst) load_v(row);
      load_k(row - kKeys);
      if constexpr (Config::kNextKFirst) load_v(row);
    }
    load_v(row);
  }
}

}  // namespace falchion::sm90
