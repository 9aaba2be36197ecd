// src/sm90/attention_backward/wide/keys.cuh: grad_k and grad_v for head dims above 128. A CTA owns 64 keys and visits
// the rows that see them. The warpgroups share the work by gradient: warpgroup 0 makes P and has grad_v, warpgroup 1
// makes dS and has grad_k.
#pragma once

#include "base/host_device.hpp"
#include "sm90/attention_backward/store.cuh"
#include "sm90/attention_backward/wide/load.cuh"
#include "sm90/attention_backward/wide/products.cuh"

namespace falchion::sm90 {

/// One consumer warpgroup. kValues: the one that has grad_v.
template <class Config, bool kValues>
class WideKeysConsumer {
 public:
  using Element = typename Config::Element;
  using Shared = typename Config::KeysShared;
  static constexpr int kWarpgroup = kValues ? 0 : 1, kLines = Config::kLines;

  FALCHION_DEVICE WideKeysConsumer(const AttentionBackwardArgs& a, Shared& shared)
      : a(a), shared(shared), unit(a.scale * kLog2e) {
    const BackwardTile& t = shared.tile;
    tile = t.end - 1;
    count = (t.end - t.begin) * t.heads;
    static_assert(kLines == 64);  // as rows_without_mask has it
    const Range whole = rows_without_mask(t, 0);
    whole_begin = static_cast<int>(min(whole.begin, std::int64_t{1} << 30));
    whole_end = static_cast<int>(min(whole.end, std::int64_t{1} << 30));
  }

  /// Each step has two products: the scores of this tile of rows, then the gradient of the previous tile. The factor of
  /// the next gradient is made while that one is computed.
  FALCHION_DEVICE void run() {
    clear(rGradient);
    if (count == 0) return store();  // no row sees these keys
    shared.full_own[kWarpgroup].wait(0);
    if constexpr (Config::kHeld > 0) {
      read_held<Config>(shared.q[Config::kStagesQ - 1] + kWarpgroup * (Config::kHeld * Config::kSizeBox), held);
      release(shared.empty_q[Config::kStagesQ - 1]);
    }
    wait_for_scores();
    start_own_scores();
    wait_multiply<0>(rS);
    make_factor();
    round_factor<Element>(factor, rS);
    CUTE_NO_UNROLL
    for (int step = 1; step < count; ++step) {
      const RingPosition<Config::kStagesQ> q_before = at_q;
      const RingPosition<Config::kStagesO> o_before = at_o;
      advance();
      wait_for_gradient(q_before, o_before);
      wait_for_scores();
      start_own_scores();                                  // S^T = K Q^T, or dP^T = V dO^T
      start_own_gradient(q_before.stage, o_before.stage);  // dV += P^T dO, or dK += dS^T Q
      wait_multiply<1>(rS);
      make_factor();  // P, or dS = P (dP - D)
      wait_multiply<0>(rGradient);
      release(shared.empty_q[q_before.stage]);
      release(shared.empty_grad_o[o_before.stage]);
      // Not earlier: the product reads these registers until now.
      round_factor<Element>(factor, rS);
    }
    wait_for_gradient(at_q, at_o);
    start_own_gradient(at_q.stage, at_o.stage);
    wait_multiply<0>(rGradient);
    store();
  }

 private:
  using Fragments = WideFragments<Config>;
  using Factor = typename Fragments::Factor;

  FALCHION_DEVICE void store() {
    const View& x = kValues ? a.grad_v : a.grad_k;
    const BackwardTile& t = shared.tile;
    const std::int64_t head = t.k.batch * x.stride[0] + t.k.begin * x.stride[1] + t.h_kv * x.stride[2];
    const GradientRows to{x,
                          head,
                          t.own0,
                          t.k.length,
                          0,
                          static_cast<int>(kValues ? a.d_v : a.d_qk),
                          kValues ? 1.f : a.scale,
                          !a.grads_f32 && a.grads_aligned};
    store_rows<Element, Config::kD, 4>(a, to, rGradient, [](int) { return true; });
  }
  template <class Barrier_>
  static FALCHION_DEVICE void release(Barrier_& empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) empty.arrive();
  }
  FALCHION_DEVICE void advance() {
    at_q.advance();
    at_o.advance();
    at_p.advance();
    if (--tile < shared.tile.begin) tile = shared.tile.end - 1;  // of the next head
  }

  FALCHION_DEVICE void wait_for_scores() const {
    if constexpr (kValues) shared.ready_q[at_q.stage].wait(at_q.parity);
    if constexpr (!kValues) shared.ready_grad_o[at_o.stage].wait(at_o.parity);
  }
  /// S^T = K Q^T, or dP^T = V dO^T.
  FALCHION_DEVICE void start_own_scores() {
    start_scores<Config>(shared.own[kWarpgroup], held, kValues ? shared.q[at_q.stage] : shared.grad_o[at_o.stage], rS);
  }
  template <class AtQ, class AtO>
  FALCHION_DEVICE void wait_for_gradient(const AtQ& q, const AtO& o) const {
    if constexpr (kValues) shared.ready_grad_o[o.stage].wait(o.parity);
    if constexpr (!kValues) shared.ready_q[q.stage].wait(q.parity);
  }
  /// dV += P^T dO, or dK += dS^T Q.
  FALCHION_DEVICE void start_own_gradient(int stage_q, int stage_o) {
    start_gradient<Config>(factor, kValues ? shared.grad_o[stage_o] : shared.q[stage_q], rGradient);
  }

  /// Turns S into P and passes it to the other warpgroup, or turns dP into dS.
  FALCHION_DEVICE void make_factor() {
    if constexpr (!kValues) shared.ready_q[at_q.stage].wait(at_q.parity);  // the statistics come with q
    const int q0 = tile * kLines;
    if constexpr (kValues) {
      make_p();
    } else {
      make_ds();
    }
    if (q0 < whole_begin || q0 + kLines > whole_end || shared.dead[at_q.stage]) mask_factor(q0);
    if constexpr (kValues) put_p();
  }
  FALCHION_DEVICE void mask_factor(int q0) {
    const BackwardTile& t = shared.tile;
    const auto rows_of = [&](int line) {
      const int key = t.own0 + line;
      return key < t.k.length ? queries_of(t.mask, key, key + 1, t.q.length) : Range{0, 0};
    };
    keep_seen(rS, q0, rows_of, [&](int row) { return !counts_for_nothing({0, shared.delta[at_q.stage][row]}); });
  }
  /// The numbers of two neighbouring columns.
  static FALCHION_DEVICE float2 pair_of(const float* of_rows, int n) {
    return *reinterpret_cast<const float2*>(of_rows + column_of(n));
  }
  /// P = exp2(S unit - lse). Masked pairs get 0, whatever their lse is.
  FALCHION_DEVICE void make_p() {
    CUTE_UNROLL
    for (int n = 0; n < 8; ++n) {
      const float2 lse = pair_of(shared.lse[at_q.stage], n);
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) rS(4 * n + i) = exp2(fmaf(rS(4 * n + i), unit, i % 2 == 0 ? -lse.x : -lse.y));
    }
  }
  /// Passes P, rounded, to the other warpgroup, each thread to its counterpart. The pairs in a word differ from those
  /// in the factor: with equal words ptxas would use the same register for both, and write the factor while the product
  /// still reads it.
  FALCHION_DEVICE void put_p() {
    shared.empty_p[at_p.stage].wait(at_p.parity ^ 1);
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) {
      cutlass::Array<Element, 8> words;
      CUTE_UNROLL
      for (int j = 0; j < 4; ++j)
        reinterpret_cast<cutlass::Array<Element, 2>*>(&words)[j] =
            cutlass::NumericArrayConverter<Element, float, 2>::convert({rS(4 * i + j), rS(4 * i + j + 16)});
      shared.p[at_p.stage][i][threadIdx.x % 128] = reinterpret_cast<const uint4&>(words);
    }
    release(shared.full_p[at_p.stage]);
  }
  /// dS = P (dP - D), from the rounded P.
  FALCHION_DEVICE void make_ds() {
    shared.full_p[at_p.stage].wait(at_p.parity);
    const float* delta = shared.delta[at_q.stage];
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint4 words = shared.p[at_p.stage][i][threadIdx.x % 128];
      const float2 low = pair_of(delta, i), high = pair_of(delta, i + 4);
      CUTE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const auto p = reinterpret_cast<const cutlass::Array<Element, 2>*>(&words)[j];
        rS(4 * i + j) = static_cast<float>(p[0]) * (rS(4 * i + j) - (j % 2 == 0 ? low.x : low.y));
        rS(4 * i + j + 16) = static_cast<float>(p[1]) * (rS(4 * i + j + 16) - (j % 2 == 0 ? high.x : high.y));
      }
    }
    release(shared.empty_p[at_p.stage]);
  }

  typename Fragments::Scores rS;           // (64 keys, 64 rows): scores, then the factor
  typename Fragments::Gradient rGradient;  // (64 keys, D)
  Factor factor;
  typename Fragments::Held held;
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kStagesO> at_o;
  RingPosition<Config::kStagesP> at_p;
  int tile, count;  // the tile of rows; steps in all
  int whole_begin, whole_end;

  const AttentionBackwardArgs& a;
  Shared& shared;
  const float unit;  // how much one unit of S is in the exponent of 2
};

/// A CTA that owns keys.
template <class Config>
FALCHION_DEVICE void own_keys(const AttentionBackwardArgs& a, const BackwardDivisors& by, const BackwardMaps& maps,
                              int block, typename Config::KeysShared& shared) {
  if (threadIdx.x == 0) {
    for (auto& full : shared.full_own) full.init(1);
    for (int i = 0; i < Config::kStagesQ; ++i) {
      shared.full_q[i].init(3);
      shared.ready_q[i].init(1);
      shared.empty_q[i].init(4 * Config::kConsumers);
    }
    for (int i = 0; i < Config::kStagesO; ++i) {
      shared.full_grad_o[i].init(1);
      shared.ready_grad_o[i].init(1);
      shared.empty_grad_o[i].init(4 * Config::kConsumers);
    }
    for (int i = 0; i < Config::kStagesP; ++i) {
      shared.full_p[i].init(4);
      shared.empty_p[i].init(4);
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  wait_for_earlier_kernels();
  const auto t = BackwardTile::of<Owner::keys, Config::kKeys, Config::kLines>(a, by, block);
  if (t.own0 >= t.k.length) return;
  if (threadIdx.x == 0) shared.tile = t;
  __syncthreads();
  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (warpgroup == Config::kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<Config::kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    if (warp == 0 && threadIdx.x % 32 == 0) load_for_keys<Config>(a, maps, shared);
    if (warp == 1) guard_rows<Config>(shared);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Config::kConsumerRegisters>();
    if (warpgroup == 0) {
      WideKeysConsumer<Config, true>(a, shared).run();
    } else {
      WideKeysConsumer<Config, false>(a, shared).run();
    }
  }
}

}  // namespace falchion::sm90
