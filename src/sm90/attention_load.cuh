// src/sm90/attention_load.cuh: the two roles of softmax attention on Hopper that compute no attention: the scheduler
// warp works out which tiles the CTA has, and the producer thread loads Q, K and V of each into shared memory. The
// consumers of attention_forward.cuh take both from there.
#pragma once

#include "blocks/sm90_tma.cuh"
#include "gpu/attention_tile.cuh"
#include "sm90/attention_forward_config.hpp"
#include "sm90/attention_schedule.hpp"

namespace falchion::sm90 {

using namespace gpu;

struct TensorMaps {
  CUtensorMap q, k, v;
};

/// gridDim.x. The asm makes the compiler read it each time instead of keeping it in a register.
__device__ __forceinline__ int grid_size() {
  int ctas;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(ctas));
  return ctas;
}

/// The scheduler, one warp. It works out which tiles this CTA has and writes a record of each for the producer and the
/// consumers, up to kTiles records ahead. For each it waits until all of these have given the old record back
/// (empty_tile), writes first the rows and then the keys, and says so (full_tile). The last record says that there are
/// no more tiles.
template <class Config>
__device__ __forceinline__ void plan_tiles(const AttentionArgs& a, const Divisors& by, const Schedule& schedule,
                                           typename Config::Shared& shared) {
  RingPosition<Config::kTiles> at;
  const bool leader = threadIdx.x % 32 == 0;
  bool second = false;
  CUTE_NO_UNROLL
  for (int unit = static_cast<int>(blockIdx.x), x = 0; x != Schedule::kNoMore;) {
    x = schedule.at(unit, second);
    schedule.advance(grid_size(), &unit, &second);
    if (x == Schedule::kNone) continue;
    TileRecord& tile = shared.tile[at.stage];
    shared.empty_tile[at.stage].wait(at.parity ^ 1);
    // Hides that `now` is the same for each tile. Otherwise the compiler computes what depends on the arguments alone
    // once and keeps it in registers, of which this warp has few.
    const AttentionArgs* now = &a;
    asm volatile("" : "+l"(now));
    const AttentionTile rows = AttentionTile::rows_of<Config::kRows>(*now, by, max(x, 0));
    if (x >= 0 && rows.row0 >= rows.rows) continue;
    if (leader) {
      tile.write_rows(rows);
      asm volatile("" ::: "memory");  // the rows are read back from the record instead of being kept in registers
      AttentionTile t = tile.read(by);
      t.look<Config::kRows, Config::kKeys>(*now);
      tile.write_keys(t);
      if (x < 0) tile.row0 = TileRecord::kNoMore;
      shared.full_tile[at.stage].arrive();
    }
    at.advance();
  }
}

/// The producer, one thread. For each record (full_tile) it loads Q of the tile and then K and V of its tiles of keys,
/// from the last to the first, because only the last may be ragged. It waits for each stage to be free (empty_q,
/// empty_k, empty_v) and gives the record back at last. V of a tile of keys is loaded after K of the next one where the
/// consumers need S of the next tile first (kNextKFirst).
template <class Config>
__device__ __forceinline__ void produce(const Divisors& by, const TensorMaps& maps, typename Config::Shared& shared) {
  constexpr int kKeys = Config::kKeys;
  RingPosition<Config::kStages> at_k, at_v;
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kTiles> at_tile;
  for (;; shared.empty_tile[at_tile.stage].arrive(), at_tile.advance()) {
    shared.full_tile[at_tile.stage].wait(at_tile.parity);
    const TileRecord& tile = shared.tile[at_tile.stage];
    if (tile.row0 < 0) break;
    if (tile.begin >= tile.end) continue;
    const auto load_q = [&](int row) {
      shared.empty_q[at_q.stage].wait(at_q.parity ^ 1);
      load_boxes<Config::kBoxes, Config::kBox>(maps.q, shared.full_q[at_q.stage], shared.q[at_q.stage], kReadOnce,
                                               tile.h, row, static_cast<int>(tile.q.batch));
      at_q.advance();
    };
    const int head = by.ratio.div(tile.h), batch = static_cast<int>(tile.k.batch);
    const auto load_k = [&](int row) {
      shared.empty_k[at_k.stage].wait(at_k.parity ^ 1);
      load_boxes<Config::kBoxes, Config::kBox>(maps.k, shared.full_k[at_k.stage], shared.k[at_k.stage], kReadAgain,
                                               head, row, batch);
      at_k.advance();
    };
    const auto load_v = [&](int row) {
      shared.empty_v[at_v.stage].wait(at_v.parity ^ 1);
      load_boxes<Config::kBoxesV, Config::kBox>(maps.v, shared.full_v[at_v.stage], shared.v[at_v.stage], kReadAgain,
                                                head, row, batch);
      at_v.advance();
    };
    load_q(static_cast<int>(tile.q.begin) + by.group.div(tile.row0));
    int n = tile.end - tile.begin, row = static_cast<int>(tile.k.begin) + (tile.end - 1) * kKeys;
    load_k(row);
    CUTE_NO_UNROLL
    for (; --n > 0; row -= kKeys) {
      if constexpr (!Config::kNextKFirst) load_v(row);
      load_k(row - kKeys);
      if constexpr (Config::kNextKFirst) load_v(row);
    }
    load_v(row);
  }
}

}  // namespace falchion::sm90
