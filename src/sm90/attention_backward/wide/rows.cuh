// src/sm90/attention_backward/wide/rows.cuh: grad_q for head dims above 128. A CTA owns 128 rows, 64 for each of its
// consumer warpgroups, and visits the keys that they see.
#pragma once

#include "base/host_device.hpp"
#include "sm90/attention_backward/store.cuh"
#include "sm90/attention_backward/wide/load.cuh"
#include "sm90/attention_backward/wide/products.cuh"

namespace falchion::sm90 {

/// One consumer warpgroup, which has 64 of the rows.
template <class Config>
class WideRowsConsumer {
 public:
  using Element = typename Config::Element;
  using Shared = typename Config::RowsShared;
  static constexpr int kLines = Config::kLines;

  FALCHION_DEVICE WideRowsConsumer(const AttentionBackwardArgs& a, Shared& shared, int warpgroup)
      : a(a), shared(shared), warpgroup(warpgroup), unit(a.scale * kLog2e) {
    const BackwardTile& t = shared.tile;
    row0 = t.own0 + warpgroup * kLines;
    tile = t.end - 1;
    const Range whole = t.mask.unmasked(row0, row0 + kLines);  // keys that need no mask
    whole_begin = static_cast<int>(min(whole.begin, std::int64_t{1} << 30));
    whole_end = static_cast<int>(max(whole.end, std::int64_t{0}));
  }

  /// Each step has three products: dQ of the previous tile, then dP and S of this one.
  FALCHION_DEVICE void run() {
    const BackwardTile& t = shared.tile;
    clear(rDq);
    if (t.end > t.begin) {
      read_statistics();
      shared.full_grad_o.wait(0);
      int stage_v = start_dp();
      shared.full_q.wait(0);
      at.advance();
      shared.full_kv[at.stage].wait(at.parity);
      clear_past_keys(shared.kv[at.stage]);
      int stage_k = start_s();
      wait_multiply<1>(rDp);
      release(stage_v);
      wait_multiply<0>(rS);
      make_ds();
      CUTE_NO_UNROLL
      while (--tile >= t.begin) {
        const int stage_before = stage_k;
        start_dq(stage_before);  // dQ += dS K, of the previous tile
        at.advance();
        stage_v = start_dp();  // dP = dO V^T
        at.advance();
        shared.full_kv[at.stage].wait(at.parity);
        stage_k = start_s();  // S = Q K^T
        wait_multiply<2>(rDq);
        release(stage_before);
        wait_multiply<1>(rDp);
        release(stage_v);
        wait_multiply<0>(rS);
        make_ds();  // dS = e^(scale S - lse) (dP - D)
      }
      start_dq(stage_k);
      wait_multiply<0>(rDq);
    }
    store();
  }

 private:
  using Fragments = WideFragments<Config>;

  FALCHION_DEVICE void store() {
    const View& x = a.grad_q;
    const BackwardTile& t = shared.tile;
    const BackwardLayout layout = BackwardLayout::of(a);
    const std::int64_t first = layout.first_row(a, t.b, t.h, t.q.begin);
    const std::int64_t head = t.q.batch * x.stride[0] + t.q.begin * x.stride[1] + t.h * x.stride[2];
    const GradientRows to{
        x, head, row0, t.q.length, 0, static_cast<int>(a.d_qk), a.scale, !a.grads_f32 && a.grads_aligned};
    store_rows<Element, Config::kD, 4>(a, to, rDq,
                                       [&](int row) { return !counts_for_nothing(layout.statistic(a, first + row)); });
  }
  FALCHION_DEVICE void release(int stage) {
    if (threadIdx.x % 32 == 0) shared.empty_kv[stage].arrive();
  }

  /// Loads the statistics of this thread's two rows. Rows past the end need none, since nothing of them is stored.
  FALCHION_DEVICE void read_statistics() {
    const BackwardTile& t = shared.tile;
    const BackwardLayout layout = BackwardLayout::of(a);
    const std::int64_t first = layout.first_row(a, t.b, t.h, t.q.begin);
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) statistic[r] = layout.statistic(a, first + row0 + line_of(r));
  }
  /// TMA loads whole tiles: keys past the used length may hold NaN, which times 0 is NaN in dQ. Only the first visited
  /// tile can have such keys.
  FALCHION_DEVICE void clear_past_keys(Element* k) {
    const BackwardTile& t = shared.tile;
    const int past = t.k.length - tile * kLines;
    if (past >= kLines || !(a.packed || a.used_k != nullptr)) return;
    CUTE_NO_UNROLL
    for (int line = past + static_cast<int>(threadIdx.x) / 32; line < kLines; line += 4 * Config::kConsumers)
      clear_line<kLines, Config::kBoxes>(k, line);
    publish_to_async();
    cutlass::arch::NamedBarrier::sync(128 * Config::kConsumers, 0);
  }

  /// Starts dP = dO V^T, once V has arrived. Returns V's stage.
  FALCHION_DEVICE int start_dp() {
    shared.full_kv[at.stage].wait(at.parity);
    start_scores<Config>(shared.grad_o[warpgroup], shared.kv[at.stage], rDp);
    return at.stage;
  }
  /// S = Q K^T.
  FALCHION_DEVICE int start_s() {
    start_scores<Config>(shared.q[warpgroup], shared.kv[at.stage], rS);
    return at.stage;
  }
  /// dQ += dS K.
  FALCHION_DEVICE void start_dq(int stage) { start_gradient<Config>(ds, shared.kv[stage], rDq); }

  /// dS = exp2(S unit - lse) (dP - D), rounded; masked pairs get 0.
  FALCHION_DEVICE void make_ds() {
    const BackwardTile& t = shared.tile;
    const int k0 = tile * kLines;
    CUTE_UNROLL
    for (int i = 0; i < 32; ++i) {
      const RowStatistic& x = statistic[i / 2 % 2];
      rS(i) = exp2(fmaf(rS(i), unit, -x.lse)) * (rDp(i) - x.delta);
    }
    if (k0 < whole_begin || k0 + kLines > whole_end) {
      keep_seen(
          rS, k0, [&](int line) { return t.mask.keys(row0 + line); }, [](int) { return true; });
    }
    round_factor<Element>(ds, rS);
  }

  typename Fragments::Scores rS, rDp;  // (64 rows, 64 keys)
  typename Fragments::Gradient rDq;    // (64 rows, D)
  typename Fragments::Factor ds;
  RowStatistic statistic[2];
  RingPosition<Config::kStagesKv> at;
  int row0, tile;  // the first row; the tile of keys
  int whole_begin, whole_end;

  const AttentionBackwardArgs& a;
  Shared& shared;
  const int warpgroup;
  const float unit;  // how much one unit of S is in the exponent of 2
};

/// A CTA that owns rows.
template <class Config>
FALCHION_DEVICE void own_rows(const AttentionBackwardArgs& a, const BackwardDivisors& by, const BackwardMaps& maps,
                              int block, typename Config::RowsShared& shared) {
  if (threadIdx.x == 0) {
    shared.full_q.init(Config::kConsumers);
    shared.full_grad_o.init(Config::kConsumers);
    for (int i = 0; i < Config::kStagesKv; ++i) {
      shared.full_kv[i].init(1);
      shared.empty_kv[i].init(4 * Config::kConsumers);
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  wait_for_earlier_kernels();
  const auto t = BackwardTile::of<Owner::rows, Config::kRows, Config::kLines>(a, by, block);
  if (t.own0 >= t.q.length) return;
  if (threadIdx.x == 0) shared.tile = t;
  __syncthreads();
  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (warpgroup == Config::kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<Config::kProducerRegisters>();
    if (threadIdx.x == 128 * Config::kConsumers) load_for_rows<Config>(maps, shared);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Config::kConsumerRegisters>();
    WideRowsConsumer<Config>(a, shared, warpgroup).run();
  }
}

}  // namespace falchion::sm90
