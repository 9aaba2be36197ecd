// src/sm90/attention_backward_load.cuh: the warps of Hopper's backward kernel that compute no products. One loads the
// tiles, one clears rows that count for nothing, and two add the tiles of dQ to the sums of grad_q.
#pragma once

#include "blocks/gpu_softmax.cuh"
#include "sm90/attention_backward_config.hpp"

namespace falchion::sm90 {

using namespace gpu;

struct BackwardMaps {
  CUtensorMap q, k, v, grad_o;
};

/// The steps of a CTA: for each query head of its K/V head, the tiles of rows that see its keys, from the last to the
/// first. So under a causal band the CTAs of a head begin with the same tile, and those whose keys come first, which
/// also add first, end last; where sums have a fixed order, no CTA then waits long for the one before it.
struct BackwardStep {
  const BackwardTile& t;
  int head, tile, left;

  __device__ __forceinline__ explicit BackwardStep(const BackwardTile& t)
      : t(t), head(t.h), tile(t.end - 1), left((t.end - t.begin) * t.heads) {}
  __device__ __forceinline__ bool there() const { return left > 0; }
  __device__ __forceinline__ void advance() {
    --left;
    if (--tile >= t.begin) return;
    tile = t.end - 1;
    ++head;
  }
};

/// The loader, one thread. It loads K and V once, and for each step Q, dO and the statistics of the rows.
template <class Config>
__device__ __forceinline__ void load_backward(const AttentionBackwardArgs& a, const BackwardTile& t,
                                              const BackwardMaps& maps, typename Config::Shared& shared) {
  constexpr int kBox = Config::kBox, kBoxes = Config::kBoxes;
  const BackwardLayout layout = BackwardLayout::of(a);
  const auto load_keys = [&](const CUtensorMap& map, auto& to) {
    load_boxes<kBoxes, kBox>(map, shared.full_keys, to, kReadOnce, t.h_kv, static_cast<int>(t.k.begin) + t.own0,
                             static_cast<int>(t.k.batch));
  };
  if (t.begin >= t.end) return;
  load_keys(maps.k, shared.k);
  RingPosition<Config::kStages> at;
  bool first = true;
  CUTE_NO_UNROLL
  for (BackwardStep step(t); step.there(); step.advance(), at.advance()) {
    const int row = step.tile * Config::kRows;
    auto& full = shared.full_rows[at.stage];
    shared.empty_rows[at.stage].wait(at.parity ^ 1);
    const auto load_rows = [&](const CUtensorMap& map, auto& to) {
      load_boxes<kBoxes, kBox>(map, full, to, kReadAgain, step.head, static_cast<int>(t.q.begin) + row,
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
    load_rows(maps.grad_o, shared.grad_o[at.stage]);
    if (first) load_keys(maps.v, shared.v);
    first = false;
  }
}

/// Sets line `line` of a tile of kLines lines to 0. A warp.
template <int kLines, int kBoxes, class Element>
__device__ __forceinline__ void clear_line(Element* tile, int line) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < 8 * kBoxes) reinterpret_cast<uint4*>(tile + lane / 8 * (kLines * 64) + line * 64)[lane % 8] = uint4{};
}

/// The guard, one warp. TMA brings whole tiles: where lengths lie on the device these hold rows of other sequences, and
/// a row that counts for nothing may hold NaN, which times 0 is NaN. So such lines become 0 before a consumer sees
/// them.
template <class Config>
__device__ __forceinline__ void guard_backward(const AttentionBackwardArgs& a, const BackwardTile& t,
                                               typename Config::Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  BackwardStep step(t);
  const auto publish = [&](Barrier& ready) {
    publish_to_async();
    __syncwarp();
    if (lane == 0) ready.arrive();
  };
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
  RingPosition<Config::kStages> at;
  CUTE_NO_UNROLL
  for (; step.there(); step.advance(), at.advance()) {
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
        clear_line<Config::kRows, Config::kBoxes>(shared.grad_o[at.stage], line);
      }
    }
    if (lane == 0) shared.dead[at.stage] = any;
    publish(shared.ready_rows[at.stage]);
  }
}

/// Waits until at least so many CTAs have added to a tile of sums.
__device__ __forceinline__ void wait_for_turn(const unsigned* turns, unsigned wanted) {
  unsigned now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(turns)) : "memory");
  } while (now < wanted);
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
/// Gives the turn to the next CTA, once all bulk copies of this thread have been written.
__device__ __forceinline__ void pass_turn(unsigned* turns) {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  asm volatile("fence.proxy.async.global;" ::: "memory");
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(turns)) : "memory");
}

/// How many CTAs with smaller numbers add to a tile of rows: those whose keys lie before this one's and are seen.
template <class Config>
__device__ __forceinline__ unsigned place_in_order(const BackwardTile& t, int tile) {
  const int row0 = tile * Config::kRows;
  const Range seen = t.mask.visible(row0, min(row0 + Config::kRows, t.q.length));
  return static_cast<unsigned>(t.own0 / Config::kKeys - static_cast<int>(seen.begin) / Config::kKeys);
}

/// Adds one warpgroup's part of each tile of dQ to the sums of grad_q, in f32. One thread. The CTA with the first keys
/// stores its tile instead, so that nobody has to clear the sums. After it the CTAs of a head take turns, in the order
/// of their keys, so that the bits are the same in each run; with any_order they add whenever they have something. A
/// CTA waits only for CTAs with smaller numbers, which the GPUs that we know start earlier.
template <class Config>
__device__ __forceinline__ void add_dq(const AttentionBackwardArgs& a, const BackwardTile& t, int part,
                                       typename Config::Shared& shared) {
  if (a.grad_q.data == nullptr) return;
  const BackwardLayout layout = BackwardLayout::of(a);
  const std::uint32_t from = cute::cast_smem_ptr_to_uint(shared.dq[part]);
  unsigned parity = 0;
  CUTE_NO_UNROLL
  for (int h = t.h; h < t.h + t.heads; ++h) {
    const std::int64_t row = layout.first_row(a, t.b, h, t.q.begin) + (t.end - 1) * Config::kRows;
    float* to = layout.grad_q_sums(a) + row * Config::kD + part * Config::kSizeDq;
    unsigned* turns = layout.turns(a) + row / 64 * 2 + part;
    CUTE_NO_UNROLL
    for (int tile = t.end - 1; tile >= t.begin; --tile, parity ^= 1) {
      const unsigned place = place_in_order<Config>(t, tile);
      if (place > 0) wait_for_turn(turns, a.any_order ? 1 : place);
      shared.full_dq[part].wait(parity);
      if (place == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
                     "r"(from), "n"(Config::kSizeDq * 4)
                     : "memory");
      } else {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                         __cvta_generic_to_global(to)),
                     "r"(from), "n"(Config::kSizeDq * 4)
                     : "memory");
      }
      cute::tma_store_arrive();
      cute::tma_store_wait<0>();  // it has been read
      shared.empty_dq[part].arrive();
      if (place == 0 || !a.any_order) pass_turn(turns);
      to -= Config::kRows * Config::kD;
      turns -= Config::kRows / 64 * 2;
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");  // it has been written, before the CTA ends
}

}  // namespace falchion::sm90
