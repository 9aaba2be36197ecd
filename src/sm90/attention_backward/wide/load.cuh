// src/sm90/attention_backward/wide/load.cuh: the warps of Hopper's backward kernel for head dims above 128 that compute
// no products. They load the tiles, and where keys are owned one clears masked-out rows.
#pragma once

#include "base/host_device.hpp"
#include "sm90/attention_backward/load.cuh"
#include "sm90/attention_backward/wide/config.hpp"

namespace falchion::sm90 {

/// Issues the loads of the lines from `row` on of one head, one box after another.
template <class Config, int kSize>
FALCHION_DEVICE void load_tile(const CUtensorMap& map, BarrierOfBytes& full, typename Config::Element (&to)[kSize],
                               std::uint64_t hint, const Rows& rows, int head, int row) {
  load_boxes<Config::kBoxes, Config::kBox>(map, full, to, hint, head, static_cast<int>(rows.begin) + row,
                                           static_cast<int>(rows.batch));
}

/// The loader of a CTA that owns keys, one thread. K and V are loaded once, and for each step Q with the statistics of
/// its rows, and dO. The boxes of K and V that will be held in registers lie in the last stage of q until they have
/// been read.
template <class Config>
FALCHION_DEVICE void load_for_keys(const AttentionBackwardArgs& a, const BackwardMaps& maps,
                                   typename Config::KeysShared& shared) {
  using Element = typename Config::Element;
  constexpr int kLast = Config::kStagesQ - 1;
  const BackwardTile& t = shared.tile;
  if (t.begin >= t.end) return;
  const BackwardLayout layout = BackwardLayout::of(a);
  const auto load_own = [&](const CUtensorMap& map, int which) {
    auto& full = shared.full_own[which];
    full.arrive_and_expect_tx(Config::kSize * sizeof(Element));
    Element* held = shared.q[kLast] + which * (Config::kHeld * Config::kSizeBox);
    CUTE_UNROLL
    for (int i = 0; i < Config::kBoxes; ++i) {
      Element* to = i < Config::kBoxesHere ? shared.own[which] + i * Config::kSizeBox
                                           : held + (i - Config::kBoxesHere) * Config::kSizeBox;
      cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadOnce, to, Config::kBox * i,
                                   t.h_kv, static_cast<int>(t.k.begin) + t.own0, static_cast<int>(t.k.batch));
    }
  };
  load_own(maps.k, 0);
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kStagesO> at_o;
  bool first = true;
  CUTE_NO_UNROLL
  for (WideStep step(t); step.there(); step.advance(), at_q.advance(), at_o.advance()) {
    const int row = step.tile * Config::kLines;
    const bool held_before = Config::kHeld > 0 && at_q.stage == kLast;
    shared.empty_q[at_q.stage].wait(at_q.parity ^ (held_before ? 0 : 1));
    auto& full = shared.full_q[at_q.stage];
    load_tile<Config>(maps.q, full, shared.q[at_q.stage], kReadAgain, t.q, step.head, row);
    const std::int64_t in_workspace = layout.first_row(a, t.b, step.head, t.q.begin) + row;
    const auto load_statistics = [&](const float* from, auto& to) {
      full.arrive_and_expect_tx(sizeof(to));
      cute::SM90_BULK_COPY_G2S::copy(from, reinterpret_cast<std::uint64_t*>(&full), to, sizeof(to));
    };
    load_statistics(layout.lse(a) + in_workspace, shared.lse[at_q.stage]);
    load_statistics(layout.delta(a) + in_workspace, shared.delta[at_q.stage]);
    if (first) load_own(maps.v, 1);
    first = false;
    shared.empty_grad_o[at_o.stage].wait(at_o.parity ^ 1);
    load_tile<Config>(maps.grad_o, shared.full_grad_o[at_o.stage], shared.grad_o[at_o.stage], kReadAgain, t.q,
                      step.head, row);
  }
}

/// The guard of a CTA that owns keys, one warp. A row outside its sequence may hold NaN, which times 0 is NaN. So the
/// guard sets such lines to 0 before a consumer reads them. Keys past the end need no guard: their results are never
/// stored.
template <class Config>
FALCHION_DEVICE void guard_rows(typename Config::KeysShared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kStagesO> at_o;
  const auto clear_and_publish = [&](auto& tile, std::uint64_t dead, Barrier& ready) {
    CUTE_NO_UNROLL
    for (; dead != 0; dead &= dead - 1)
      clear_line<Config::kLines, Config::kBoxes>(tile, __ffsll(static_cast<long long>(dead)) - 1);
    publish_to_async();
    __syncwarp();
    if (lane == 0) ready.arrive();
  };
  CUTE_NO_UNROLL
  for (WideStep step(shared.tile); step.there(); step.advance(), at_q.advance(), at_o.advance()) {
    shared.full_q[at_q.stage].wait(at_q.parity);
    __syncwarp();
    const float* delta = shared.delta[at_q.stage];
    const std::uint64_t low = __ballot_sync(~0u, counts_for_nothing({0, delta[lane]}));
    const std::uint64_t high = __ballot_sync(~0u, counts_for_nothing({0, delta[lane + 32]}));
    const std::uint64_t dead = high << 32 | low;
    if (lane == 0) shared.dead[at_q.stage] = dead != 0;
    clear_and_publish(shared.q[at_q.stage], dead, shared.ready_q[at_q.stage]);
    shared.full_grad_o[at_o.stage].wait(at_o.parity);
    __syncwarp();
    clear_and_publish(shared.grad_o[at_o.stage], dead, shared.ready_grad_o[at_o.stage]);
  }
}

/// The loader of a CTA that owns rows, one thread. Tiles of keys are loaded from the last to the first, V before K: dP
/// is computed before S, so that V's stage is free half a step before K's, and three stages are enough.
template <class Config>
FALCHION_DEVICE void load_for_rows(const BackwardMaps& maps, typename Config::RowsShared& shared) {
  const BackwardTile& t = shared.tile;
  if (t.begin >= t.end) return;
  RingPosition<Config::kStagesKv> at;
  const auto load_rows = [&](const CUtensorMap& map, BarrierOfBytes& full, auto& to) {
    CUTE_UNROLL
    for (int i = 0; i < Config::kConsumers; ++i)
      load_tile<Config>(map, full, to[i], kReadOnce, t.q, t.h, t.own0 + i * Config::kLines);
  };
  const auto load_keys = [&](const CUtensorMap& map, int tile) {
    shared.empty_kv[at.stage].wait(at.parity ^ 1);
    load_tile<Config>(map, shared.full_kv[at.stage], shared.kv[at.stage], kReadAgain, t.k, t.h_kv,
                      tile * Config::kLines);
    at.advance();
  };
  load_rows(maps.grad_o, shared.full_grad_o, shared.grad_o);
  CUTE_NO_UNROLL
  for (int tile = t.end - 1; tile >= t.begin; --tile) {
    load_keys(maps.v, tile);
    if (tile == t.end - 1) load_rows(maps.q, shared.full_q, shared.q);
    load_keys(maps.k, tile);
  }
}

}  // namespace falchion::sm90
