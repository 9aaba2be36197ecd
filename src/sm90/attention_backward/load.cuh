// src/sm90/attention_backward/load.cuh: the two warps of Hopper's backward kernel that provide the tiles: one loads
// them, the other clears masked-out rows.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/softmax.cuh"
#include "sm90/attention_backward/config.hpp"
#include "sm90/attention_backward/maps.cuh"
#include "sm90/attention_backward/step.hpp"

namespace falchion::sm90 {

using namespace gpu;

/// Loads the keys of a tile. They are on their way before the other threads know the tile.
template <class Config>
FALCHION_DEVICE void load_keys(const BackwardTile& t, const BackwardMaps& maps, typename Config::Shared& shared) {
  const auto load = [&](const CUtensorMap& map, auto& to) {
    load_boxes<Config::kBoxes, Config::kBox>(map, shared.full_keys, to, kReadOnce, t.h_kv,
                                             static_cast<int>(t.k.begin) + t.own0, static_cast<int>(t.k.batch));
  };
  if (t.begin >= t.end) return;
  load(maps.k, shared.k);
  load(maps.v, shared.v);
}

/// The loader, one thread. It loads for each step Q, dO and the statistics of the rows.
template <class Config>
FALCHION_DEVICE void load_backward(const AttentionBackwardArgs& a, const BackwardMaps& maps,
                                   typename Config::Shared& shared) {
  const BackwardTile& t = shared.tile;
  const BackwardLayout layout = BackwardLayout::of(a);
  RingPosition<Config::kStagesQ> at;
  RingPosition<Config::kStagesGradO> at_grad_o;
  CUTE_NO_UNROLL
  for (BackwardStep step(t, shared.first); step.there(); step.advance(), at.advance(), at_grad_o.advance()) {
    const int row = step.tile * Config::kRows;
    auto& full = shared.full_rows[at.stage];
    shared.empty_q[at.stage].wait(at.parity ^ 1);
    const auto load_rows = [&](const CUtensorMap& map, auto& to) {
      load_boxes<Config::kBoxes, Config::kBox>(map, full, to, kReadAgain, step.head, static_cast<int>(t.q.begin) + row,
                                               static_cast<int>(t.q.batch));
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

/// The guard, one warp. TMA loads whole tiles. Where lengths lie on the device, a tile may hold rows of other
/// sequences, and a row outside its sequence may hold NaN, which times 0 is NaN. So the guard sets such lines to 0
/// before a consumer reads them. It also stores for each consumer whether the tile needs a mask, since consumers have
/// no registers to compute that.
template <class Config>
FALCHION_DEVICE void guard_backward(const AttentionBackwardArgs& a, typename Config::Shared& shared) {
  const BackwardTile& t = shared.tile;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto publish = [&](Barrier& ready) {
    publish_to_async();
    __syncwarp();
    if (lane == 0) ready.arrive();
  };
  const Range whole = rows_without_mask(t, lane % Config::kConsumers);
  BackwardStep step(t, shared.first);
  if (step.there()) {
    shared.full_keys.wait(0);
    __syncwarp();
    const int keys = t.k.length - t.own0;
    if (a.packed || a.used_k != nullptr) {
      CUTE_NO_UNROLL
      for (int line = max(keys, 0); line < Config::kKeys; ++line) {
        clear_line<Config::kKeys, Config::kBoxes>(shared.k, line);
        clear_line<Config::kKeys, Config::kBoxes>(shared.v, line);
      }
    }
    publish(shared.ready_keys);
  }
  RingPosition<Config::kStagesQ> at;
  RingPosition<Config::kStagesGradO> at_grad_o;
  CUTE_NO_UNROLL
  for (; step.there(); step.advance(), at.advance(), at_grad_o.advance()) {
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
    if (lane < Config::kConsumers)
      shared.masked[at.stage][lane] = any || row0 < whole.begin || row0 + Config::kRows > whole.end;
    publish(shared.ready_rows[at.stage]);
  }
}

}  // namespace falchion::sm90
