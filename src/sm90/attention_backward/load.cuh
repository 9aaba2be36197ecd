// src/sm90/attention_backward/load.cuh: the two warps of Hopper's backward kernel that provide the tiles: one loads
// them, the other clears masked-out rows.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_backward/order.hpp"
#include "gpu/blocks/softmax.cuh"
#include "sm90/attention_backward/config.hpp"
#include "sm90/attention_backward/maps.cuh"
#include "sm90/attention_backward/step.hpp"

namespace falchion::sm90 {

using namespace gpu;

/// Loads K or V of a tile to place `to`. One thread.
template <class Config>
FALCHION_DEVICE void load_keys(const CUtensorMap& map, const BackwardTile& t, typename Config::Shared& shared, int to) {
  load_boxes<Config::kBoxes, Config::kBox>(map, shared.full_keys[to % Config::kBarriersKeys], shared.keys[to],
                                           kReadOnce, t.h_kv, static_cast<int>(t.k.begin) + t.own0,
                                           static_cast<int>(t.k.batch));
}

/// Brings the keys of a tile into the L2, from which they come faster when the keys before are given back. One thread.
template <class Config>
FALCHION_DEVICE void prefetch_keys(const BackwardTile& t, const BackwardMaps& maps) {
  CUTE_UNROLL
  for (const CUtensorMap* map : {&maps.k, &maps.v}) {
    CUTE_UNROLL
    for (int i = 0; i < Config::kBoxes; ++i)
      cute::SM90_TMA_LOAD_4D::PREFETCH::copy(map, Config::kBox * i, t.h_kv, static_cast<int>(t.k.begin) + t.own0,
                                             static_cast<int>(t.k.batch));
  }
}

/// Calls visit(work) for each tile of keys of this CTA: one, or as many as the guard draws. One thread.
template <class Config, class Visit>
FALCHION_DEVICE void for_each_work(typename Config::Shared& shared, Visit visit) {
  if constexpr (!Config::kGoesOn) {
    visit(shared.work[0]);
  } else {
    CUTE_NO_UNROLL
    for (unsigned n = 0;; ++n) {
      const RingPosition<Config::kWorks> at(static_cast<int>(n));
      shared.full_work[at.stage].wait(at.parity);
      if (!shared.work[at.stage].there) return;
      visit(shared.work[at.stage]);
      shared.empty_work[at.stage].arrive();
    }
  }
}

/// The loader, one thread. It loads for each step Q, dO and the statistics of the rows. Where CTAs go on, the first
/// rows of a tile of keys come while the consumers are in the last steps of the tile before.
template <class Config>
FALCHION_DEVICE void load_backward(const AttentionBackwardArgs& a, const BackwardMaps& maps,
                                   typename Config::Shared& shared) {
  const BackwardLayout layout = BackwardLayout::of(a);
  RingPosition<Config::kStagesQ> at;
  RingPosition<Config::kStagesGradO> at_grad_o;
  for_each_work<Config>(shared, [&](const BackwardWork& work) {
    const BackwardTile& t = work.tile;
    CUTE_NO_UNROLL
    for (BackwardStep step(t, work.first); step.there(); step.advance(), at.advance(), at_grad_o.advance()) {
      const int row = step.tile * Config::kRows;
      auto& full = shared.full_rows[at.stage];
      shared.empty_q[at.stage].wait(at.parity ^ 1);
      const auto load_rows = [&](const CUtensorMap& map, auto& to) {
        load_boxes<Config::kBoxes, Config::kBox>(map, full, to, kReadAgain, step.head,
                                                 static_cast<int>(t.q.begin) + row, static_cast<int>(t.q.batch));
      };
      load_rows(maps.q, shared.q[at.stage]);
      const std::int64_t in_workspace = layout.first_row(a, t.b, step.head, t.q.begin) + row;
      const auto load_statistics = [&](const float* from, auto& to) {
        full.arrive_and_expect_tx(sizeof(to));
        cute::SM90_BULK_COPY_G2S::copy(from, reinterpret_cast<std::uint64_t*>(&full), to, sizeof(to));
      };
      load_statistics(layout.lse(a) + in_workspace, shared.lse[at.stage]);
      load_statistics(layout.delta(a) + in_workspace, shared.delta[at.stage]);
      shared.empty_grad_o[at_grad_o.stage].wait(at_grad_o.parity ^ 1);
      load_rows(maps.grad_o, shared.grad_o[at_grad_o.stage]);
    }
  });
}

/// Sets line `line` of a tile of kLines lines to 0. Called by a whole warp.
template <int kLines, int kBoxes, class Element>
FALCHION_DEVICE void clear_line(Element* tile, int line) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < 8 * kBoxes) reinterpret_cast<uint4*>(tile + lane / 8 * (kLines * 64) + line * 64)[lane % 8] = uint4{};
}

/// The rows that see all keys of a consumer warpgroup, which then needs no mask.
FALCHION_DEVICE Range rows_without_mask(const BackwardTile& t, int warpgroup) {
  const std::int64_t k0 = t.own0 + 64 * warpgroup, k1 = k0 + 64;
  if (k1 > t.k.length) return {0, 0};
  const std::int64_t first = k1 - 1 - t.mask.shift - t.mask.right, past = k0 - t.mask.shift + t.mask.left + 1;
  return {max(first, std::int64_t{0}), max(past, std::int64_t{0})};
}

/// Writes what the warps of a CTA must know of one of its tiles.
template <class Config>
FALCHION_DEVICE void write_work(const AttentionBackwardArgs& a, const BackwardTile& t, BackwardWork& work) {
  work.tile = t;
  work.first = first_tile(t, t.own0 / Config::kKeys, a.any_order);
}

/// Takes blocks until one has keys, and writes the record of its tile. Called by a whole warp. Even the first block of
/// a CTA is drawn: so blocks with smaller numbers belong to CTAs that have started, and a CTA that waits for its turn
/// waits for none that needs its place on the device. Without a counter each CTA has the block of its own number alone.
template <class Config>
FALCHION_DEVICE void take_work(const AttentionBackwardArgs& a, const BackwardDivisors& by, int together, int heads,
                               unsigned* counter, bool first, BackwardWork& work) {
  const int lane = static_cast<int>(threadIdx.x) % 32, tiles = by.tiles.divisor;
  bool there = true, has_keys = false;
  CUTE_NO_UNROLL
  while (there && !has_keys) {
    unsigned block = first ? blockIdx.x : ~0u;
    if (counter != nullptr) block = __shfl_sync(~0u, lane == 0 ? atomicAdd(counter, 1) : 0, 0);
    first = false;
    there = block < static_cast<unsigned>(heads * tiles);
    if (!there) continue;
    const auto t = BackwardTile::of<Owner::keys, Config::kKeys, Config::kRows>(
        a, by, tile_of_block(static_cast<int>(block), tiles, heads, together));
    has_keys = t.own0 < t.k.length;
    write_work<Config>(a, t, work);
  }
  if (lane == 0) work.there = there;
}

/// The guard, one warp. TMA loads whole tiles. Where lengths lie on the device, a tile may hold rows of other
/// sequences, and a row outside its sequence may hold NaN, which times 0 is NaN. So the guard sets such lines to 0
/// before a consumer reads them. It also stores for each consumer whether the tile needs a mask, since consumers have
/// no registers to compute that. Where CTAs go on, it draws the tiles of keys and has the keys loaded as soon as those
/// before are not needed any more.
template <class Config>
FALCHION_DEVICE void guard_backward(const AttentionBackwardArgs& a, const BackwardDivisors& by,
                                    const BackwardMaps& maps, int together, int heads, unsigned* counter,
                                    typename Config::Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto publish = [&](Barrier& ready) {
    publish_to_async();
    __syncwarp();
    if (lane == 0) ready.arrive();
  };
  const auto guard_keys = [&](const BackwardTile& t, int place, unsigned parity) {
    shared.full_keys[place].wait(parity);
    __syncwarp();
    const int keys = t.k.length - t.own0;
    if (a.packed || a.used_k != nullptr) {
      CUTE_NO_UNROLL
      for (int line = max(keys, 0); line < Config::kKeys; ++line) {
        clear_line<Config::kKeys, Config::kBoxes>(shared.keys[place], line);
        if constexpr (!Config::kGoesOn) clear_line<Config::kKeys, Config::kBoxes>(shared.keys[1], line);
      }
    }
    publish(shared.ready_keys[place]);
  };
  const auto guard_rows = [&](const BackwardStep<BackwardTile>& step, const auto& at, const auto& at_grad_o,
                              auto whole_rows) {
    shared.full_rows[at.stage].wait(at.parity);
    __syncwarp();
    bool any = false;
    CUTE_NO_UNROLL
    for (int line0 = 0; line0 < Config::kRows; line0 += 32) {
      unsigned dead = __ballot_sync(~0u, counts_for_nothing({0, shared.delta[at.stage][line0 + lane]}));
      any |= dead != 0;
      CUTE_NO_UNROLL
      for (; dead != 0; dead &= dead - 1) {
        const int line = line0 + __ffs(static_cast<int>(dead)) - 1;
        clear_line<Config::kRows, Config::kBoxes>(shared.q[at.stage], line);
        clear_line<Config::kRows, Config::kBoxes>(shared.grad_o[at_grad_o.stage], line);
      }
    }
    const int row0 = step.tile * Config::kRows;
    if (lane == 0) shared.row0[at.stage] = row0;
    const Range whole = whole_rows();
    if (lane < Config::kConsumers)
      shared.masked[at.stage][lane] = any || row0 < whole.begin || row0 + Config::kRows > whole.end;
    publish(shared.ready_rows[at.stage]);
  };
  RingPosition<Config::kStagesQ> at;
  RingPosition<Config::kStagesGradO> at_grad_o;
  if constexpr (!Config::kGoesOn) {
    const BackwardTile& t = shared.work[0].tile;
    const Range whole = rows_without_mask(t, lane % Config::kConsumers);
    BackwardStep step(t, shared.work[0].first);
    if (step.there()) guard_keys(t, 0, 0);
    CUTE_NO_UNROLL
    for (; step.there(); step.advance(), at.advance(), at_grad_o.advance())
      guard_rows(step, at, at_grad_o, [&] { return whole; });
  } else {
    CUTE_NO_UNROLL
    for (int n = 0;; ++n) {
      const RingPosition<Config::kWorks> at_work(n);
      BackwardWork& work = shared.work[at_work.stage];
      const BackwardTile& t = work.tile;
      shared.empty_work[at_work.stage].wait(at_work.parity ^ 1);
      take_work<Config>(a, by, together, heads, counter, n == 0, work);
      __syncwarp();
      if (lane == 0) shared.full_work[at_work.stage].arrive();
      if (!work.there) return;
      if (lane == 0) prefetch_keys<Config>(t, maps);
      const int place = n % 2;  // of K; V comes to the other one. Each place is filled once for each tile.
      const auto load = [&](const CUtensorMap& map, int to) {
        shared.empty_keys[to].wait(n % 2 ^ 1);
        if (lane == 0) load_keys<Config>(map, t, shared, to);
      };
      load(maps.k, place);
      BackwardStep step(t, work.first);
      const auto guard_next = [&] {  // It works out `whole` anew, for which there are no registers.
        guard_rows(step, at, at_grad_o, [&] { return rows_without_mask(t, lane % Config::kConsumers); });
        step.advance();
        at.advance();
        at_grad_o.advance();
      };
      if (step.there()) guard_next();  // while K is on its way
      guard_keys(t, place, n % 2);
      load(maps.v, place ^ 1);
      guard_keys(t, place ^ 1, n % 2);
      CUTE_NO_UNROLL
      while (step.there()) guard_next();
    }
  }
}

}  // namespace falchion::sm90
