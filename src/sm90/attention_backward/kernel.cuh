// src/sm90/attention_backward/kernel.cuh: the backward pass of softmax attention on Hopper with TMA, wgmma and warp
// roles. A CTA owns a tile of keys, whose grad_k and grad_v stay in the registers of its two consumer warpgroups, and
// walks over the tiles of query rows that see them. ref/ defines the result; this file gives the order of the steps.
// docs/design/sm90_backward.md has the schedule, the waits between the roles, and the measurements.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "base/host_device.hpp"
#include "gpu/attention_backward/order.hpp"
#include "gpu/blocks/fragments.cuh"
#include "gpu/blocks/sm90_wgmma.cuh"
#include "gpu/blocks/stream_order.cuh"
#include "sm90/attention_backward/load.cuh"
#include "sm90/attention_backward/store.cuh"
#include "sm90/attention_backward/sums.cuh"

namespace falchion::sm90 {

/// One consumer warpgroup, which has 64 of the keys.
template <class Config>
class BackwardConsumer {
 public:
  using Element = typename Config::Element;
  using Shared = typename Config::Shared;
  static constexpr int kRows = Config::kRows, kKeys = Config::kKeys;
  static constexpr int kColumns = kRows == 64 ? 16 : 4;  // of S^T: a thread holds the lse or delta of so many at a time
  static constexpr bool kReadEarly = kRows == 64;        // with more rows there are not enough registers

  FALCHION_DEVICE BackwardConsumer(const AttentionBackwardArgs& a, Shared& shared, int warpgroup)
      : a(a), shared(shared), warpgroup(warpgroup), wants_q(a.grad_q.data != nullptr), unit(a.scale * kLog2e) {}

  FALCHION_DEVICE void run() {
    if constexpr (!Config::kGoesOn) {
      compute_tile();
    } else {
      if (warpgroup == 1) pass_turn();  // the first turn goes to warpgroup 0
      CUTE_NO_UNROLL
      for (;; at_work.advance()) {
        shared.full_work[at_work.stage].wait(at_work.parity);
        if (!shared.work[at_work.stage].there) return;
        compute_tile();
        __syncwarp();
        release(shared.empty_work[at_work.stage]);
      }
    }
  }

 private:
  /// Computes grad_k and grad_v of a tile of keys. Each step has five products. S starts while dK of the previous step
  /// still runs, and dQ of the previous step runs under the arithmetic of this step, so that the tensor cores always
  /// have work. A CTA that goes on gives the keys back before it stores dK, so that the next ones come meanwhile.
  FALCHION_DEVICE void compute_tile() {
    const BackwardTile& t = tile();
    const int count = (t.end - t.begin) * t.heads;  // steps
    clear(rDk);
    clear(rDv);
    if (count == 0) {  // no row sees these keys
      if constexpr (Config::kGoesOn) {
        for (int place = 0; place < 2; ++place) {
          shared.ready_keys[place].wait(parity_of_keys());
          release(shared.empty_keys[place]);
        }
      }
      store_dv();
      return store_dk();
    }
    shared.ready_keys[place_of_k()].wait(parity_of_keys());
    warpgroup_fence_operand(rDk);
    warpgroup_fence_operand(rDv);
    if (!Config::kGoesOn && warpgroup == 1) pass_turn();  // the first turn goes to warpgroup 0
    int step = 0;
    do {
      shared.ready_rows[at.stage].wait(at.parity);
      take_turn<BackwardTurns::starting_scores>();
      start_s();  // S^T = K Q^T
      float lse[kColumns], delta[kColumns];
      if constexpr (kReadEarly) read(shared.lse[at.stage], lse);  // while S is computed
      masked = shared.masked[at.stage][warpgroup];
      warpgroup_wait<1>();  // the products of the previous step; S still runs
      if (step > 0) release_q_before();
      if (Config::kGoesOn && step == 0) shared.ready_keys[place_of_v()].wait(parity_of_keys());
      start_dp();  // dP^T = V dO^T
      pass_turn<BackwardTurns::starting_scores>();
      wait_multiply<1>(rS);
      take_turn<BackwardTurns::exponentials>();
      make_p(lse);  // P = e^(scale S - lse)
      start_dv();   // dV += P^T dO
      pass_turn<BackwardTurns::exponentials>();
      if constexpr (kReadEarly) read(shared.delta[at.stage], delta);
      if (step > 0) wait_ds_before();
      start_dq();  // dQ = dS K of the previous step; in the first step a product of stale data
      wait_multiply<2>(rDp);
      if (Config::kGoesOn && step + 1 == count) release(shared.empty_keys[place_of_v()]);
      make_ds(delta);  // dS = P (dP - D)
      put_ds();
      start_dk();  // dK += dS^T Q
      publish_ds();
      wait_multiply<1>(rDq);
      release(shared.empty_grad_o[at_grad_o.stage]);
      if (step > 0) {
        release(shared.empty_ds[ds_before()]);
        if (wants_q) put_dq(parity_of_dq(step - 1));
      }
      at.advance();
      at_grad_o.advance();
      at_ds.advance();
    } while (++step < count);
    wait_ds_before();
    start_dq();
    warpgroup_wait<1>();  // dK; dQ still runs
    warpgroup_fence_operand(rDk);
    warpgroup_fence_operand(rDv);
    if constexpr (Config::kGoesOn) release_q_before();
    store_dv();
    wait_multiply<0>(rDq);
    if constexpr (Config::kGoesOn) {
      release(shared.empty_keys[place_of_k()]);
      release(shared.empty_ds[ds_before()]);
    }
    if (wants_q) put_dq(parity_of_dq(count - 1));
    store_dk();
  }

  using MmaScores = typename Config::MmaScores;
  using MmaKeys = typename Config::MmaKeys;
  using MmaRows = typename Config::MmaRows;
  using Scores = decltype(partition_fragment_C(MmaScores{}, Shape<Int<kKeys>, Int<kRows>>{}));
  using Keys = decltype(partition_fragment_C(MmaKeys{}, Shape<Int<kKeys>, Int<Config::kD>>{}));
  using Rows_ = decltype(partition_fragment_C(MmaRows{}, Shape<Int<kRows>, Int<Config::kColumnsDq>>{}));
  using Rounded = decltype(make_tensor<Element>(Layout<Int<kRows / 2>>{}));

  FALCHION_DEVICE const BackwardTile& tile() const { return shared.work[Config::kGoesOn ? at_work.stage : 0].tile; }
  /// K of the next tile comes to the place of V, which is free before K is: so the next tile begins at once.
  FALCHION_DEVICE int place_of_k() const { return Config::kGoesOn ? at_work.stage : 0; }
  FALCHION_DEVICE int place_of_v() const { return place_of_k() ^ 1; }
  FALCHION_DEVICE unsigned parity_of_keys() const { return Config::kGoesOn ? static_cast<unsigned>(at_work.stage) : 0; }
  FALCHION_DEVICE void store_dk() const { store_keys(rDk, a.grad_k, static_cast<int>(a.d_qk), a.scale); }
  FALCHION_DEVICE void store_dv() const { store_keys(rDv, a.grad_v, static_cast<int>(a.d_v), 1); }
  template <class Fragment>
  FALCHION_DEVICE void store_keys(const Fragment& gradient, const View& x, int d, float scale) const {
    if (x.data == nullptr) return;
    const BackwardTile& t = tile();
    const std::int64_t head = t.k.batch * x.stride[0] + t.k.begin * x.stride[1] + t.h_kv * x.stride[2];
    const bool wide = !a.grads_f32 && a.grads_aligned;
    int thread = static_cast<int>(threadIdx.x);
    if constexpr (Config::kGoesOn) asm volatile("" : "+r"(thread));  // else addresses are kept from tile to tile
    const auto store = [&](bool wide) {
      const GradientRows to{x, head, t.own0 + 64 * warpgroup, t.k.length, 0, d, scale, wide};
      store_rows<Element, Config::kD, 4>(
          a, to, gradient, [](int) { return true; }, thread);
    };
    if constexpr (!Config::kGoesOn) {
      store(wide);
    } else if (wide) {  // once, and not for every four columns
      store(true);
    } else {
      store(false);
    }
  }
  template <BackwardTurns turns>
  FALCHION_DEVICE void take_turn() const {
    if constexpr (Config::kTurns == turns) cutlass::arch::NamedBarrier::sync(256, warpgroup);
  }
  template <BackwardTurns turns = Config::kTurns>
  FALCHION_DEVICE void pass_turn() const {
    if constexpr (Config::kTurns == turns) cutlass::arch::NamedBarrier::arrive(256, warpgroup ^ 1);
  }
  FALCHION_DEVICE void release_q_before() const {
    release(shared.empty_q[at.stage == 0 ? Config::kStagesQ - 1 : at.stage - 1]);
  }
  FALCHION_DEVICE int ds_before() const { return at_ds.stage ^ 1; }
  FALCHION_DEVICE void wait_ds_before() const {
    shared.full_ds[ds_before()].wait(at_ds.stage == 0 ? at_ds.parity ^ 1 : at_ds.parity);
  }
  template <class Barrier_>
  static FALCHION_DEVICE void release(Barrier_& empty) {
    if (threadIdx.x % 32 == 0) empty.arrive();
  }

  FALCHION_DEVICE void start_s() { start_scores(shared.keys[place_of_k()], shared.q[0], at.stage, rS); }  // S^T = K Q^T
  FALCHION_DEVICE void start_dp() {  // dP^T = V dO^T
    start_scores(shared.keys[place_of_v()], shared.grad_o[0], at_grad_o.stage, rDp);
  }
  template <class Fragment>
  FALCHION_DEVICE void start_scores(const Element* keys, const Element* rows, int stage, Fragment& to) {
    const auto sK = make_tensor(make_smem_ptr(keys), typename Config::LayoutK{});
    const auto sQ = make_tensor(make_smem_ptr(rows), typename Config::LayoutQ{});
    const auto slice = MmaScores{}.get_slice(warpgroup * 128);
    const auto rK = slice.partition_fragment_A(sK);
    const auto rQ = slice.partition_fragment_B(sQ);
    forget(to);
    start_multiply<true>(MmaScores{}, rK, rQ(_, _, _, stage), to);
  }
  FALCHION_DEVICE void start_dv() { start_keys(p, shared.grad_o[0], at_grad_o.stage, rDv); }  // dV += P^T dO
  FALCHION_DEVICE void start_dk() { start_keys(ds, shared.q[0], at.stage, rDk); }             // dK += dS^T Q
  template <class A, class Fragment>
  FALCHION_DEVICE void start_keys(A& factor, const Element* rows, int stage, Fragment& to) {
    const auto sQt = make_tensor(make_smem_ptr(rows), typename Config::LayoutQt{});
    const auto rQt = MmaKeys{}.get_slice(warpgroup * 128).partition_fragment_B(sQt);
    start_multiply<false>(MmaKeys{}, as_wgmma_operand_a(factor), rQt(_, _, _, stage), to);
  }
  FALCHION_DEVICE void start_dq() {  // dQ = dS K
    const auto sDs = make_tensor(make_smem_ptr(shared.ds[0]), typename Config::LayoutDs{});
    const Element* k = shared.keys[place_of_k()] + (Config::kByColumns ? warpgroup * (kKeys * Config::kColumnsDq) : 0);
    const auto sKt = make_tensor(make_smem_ptr(k), typename Config::LayoutKt{});
    const auto slice = MmaRows{}.get_slice(Config::kByColumns ? 0 : warpgroup * 128);
    const auto rDs = slice.partition_fragment_A(sDs);
    const auto rKt = slice.partition_fragment_B(sKt);
    forget(rDq);
    start_multiply<true>(MmaRows{}, rDs(_, _, _, ds_before()), rKt, rDq);
  }

  /// Reads the numbers of kColumns columns that this thread has in S^T: two in each atom.
  FALCHION_DEVICE void read(const float* of_rows, float (&to)[kColumns]) const {
    CUTE_UNROLL
    for (int n = 0; n < kColumns / 2; ++n) {
      const float2 x = reinterpret_cast<const float2*>(of_rows)[n * 4 + threadIdx.x % 4];
      to[2 * n] = x.x;
      to[2 * n + 1] = x.y;
    }
  }
  /// P = exp2(S unit - lse), rounded. Masked pairs get 0, whatever their lse is. lse holds the numbers of the first
  /// kColumns columns.
  FALCHION_DEVICE void make_p(float (&lse)[kColumns]) {
    if (masked) find_seen(shared.row0[at.stage]);
    make_rounded(p, shared.lse[at.stage], lse, [&](int i, float of_row) { return exp2(fmaf(rS(i), unit, -of_row)); });
  }
  /// dS = P (dP - D), rounded. P is the rounded one, since there are no registers for both. dV may still be reading the
  /// same registers; PTX leaves that undefined even for a read, but no register is written here.
  FALCHION_DEVICE void make_ds(float (&delta)[kColumns]) {
    make_rounded(ds, shared.delta[at.stage], delta,
                 [&](int i, float of_row) { return static_cast<float>(p(i)) * (rDp(i) - of_row); });
  }
  /// Rounds value(i, number of its row) for each of this thread's pairs; masked pairs get 0.
  template <class F>
  FALCHION_DEVICE void make_rounded(Rounded& to, const float* of_rows, float (&numbers)[kColumns], F value) {
    const auto all = [&](auto of_pair) {
      CUTE_UNROLL
      for (int row = 0; row < kRows; row += 4 * kColumns) {
        if (row > 0 || !kReadEarly) read(of_rows + row, numbers);
        round_each(to, row / 2, numbers, of_pair);
      }
    };
    if (masked) {
      all([&](int i, float x) { return (seen[i / 2 % 2] >> (i / 4 * 2 + i % 2) & 1) != 0 ? value(i, x) : 0.f; });
    } else {
      all(value);
    }
  }
  /// The same for the pairs of kColumns columns, from pair number `from` on.
  template <class F>
  FALCHION_DEVICE void round_each(Rounded& to, int from, const float (&numbers)[kColumns], F value) {
    CUTE_UNROLL
    for (int i = 0; i < 2 * kColumns; i += 2) {
      recast<cutlass::Array<Element, 2>>(to)((from + i) / 2) =
          cutlass::NumericArrayConverter<Element, float, 2>::convert(
              {value(from + i, numbers[i / 4 * 2]), value(from + i + 1, numbers[i / 4 * 2 + 1])});
    }
  }
  /// Finds which rows of this thread see its two keys. A thread has rows `row0` + 8 i and the ones after these, bits
  /// 2 i and 2 i + 1. The rows that see a key are an interval, and those that count for nothing are not seen.
  FALCHION_DEVICE void find_seen(int q0) {
    const BackwardTile& t = tile();
    const int lane = static_cast<int>(threadIdx.x) % 32, row0 = lane % 4 * 2;
    const int key = t.own0 + 64 * warpgroup + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
    std::uint32_t counts = 0;
    CUTE_UNROLL
    for (int i = 0; i < kRows / 32; ++i) {  // from a ballot of 32 rows to the bits of 8
      const bool there = !counts_for_nothing({0, shared.delta[at.stage][32 * i + lane]});
      std::uint32_t bits = __ballot_sync(~0u, there) >> row0 & 0x03030303;
      bits |= bits >> 6;
      bits |= bits >> 12;
      counts |= (bits & 0xff) << 8 * i;
    }
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const Range rows = queries_of(t.mask, key + 8 * r, key + 8 * r + 1, t.q.length);
      const std::int64_t past = key + 8 * r < t.k.length ? rows.end : 0;
      seen[r] = counts & rows_below(past - q0 - row0) & ~rows_below(rows.begin - q0 - row0);
    }
  }
  /// The bits of a thread's rows that lie before row `bound`, counted from its first row.
  static FALCHION_DEVICE std::uint32_t rows_below(std::int64_t bound) {
    const int row = static_cast<int>(min(max(bound, std::int64_t{0}), std::int64_t{kRows}));
    const int bits = row / 8 * 2 + min(row % 8, 2);
    return bits == 32 ? ~0u : (1u << bits) - 1;
  }

  /// Writes dS^T, transposed, into the tile that both warpgroups share: 8 keys of a row are 16 bytes.
  FALCHION_DEVICE void put_ds() {
    shared.empty_ds[at_ds.stage].wait(at_ds.parity ^ 1);
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
    const auto words = recast<std::uint32_t>(ds);
    Element* tile = shared.ds[at_ds.stage] + warpgroup * (kRows * 64);
    const int row = lane / 16 * 8 + lane % 8, chunk = (2 * warp + lane / 8 % 2) ^ (lane % 8);
    const std::uint32_t at_row = cute::cast_smem_ptr_to_uint(tile + row * 64 + chunk * 8);
    CUTE_UNROLL
    for (int n = 0; n < kRows / 8; n += 2) {
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at_row + n * 1024),
                   "r"(words(2 * n)), "r"(words(2 * n + 1)), "r"(words(2 * n + 2)), "r"(words(2 * n + 3))
                   : "memory");
    }
  }
  /// Signals that dS is written. The start of a product is placed between the writes and this, to hide their latency.
  FALCHION_DEVICE void publish_ds() {
    publish_to_async();
    __syncwarp();
    release(shared.full_ds[at_ds.stage]);
  }
  /// The parity for which the next dQ waits: that of step `step` of a CTA with one tile, and else of all its steps.
  FALCHION_DEVICE unsigned parity_of_dq(int step) const {
    return static_cast<unsigned>(Config::kGoesOn ? at_ds.stage : step % 2 ^ 1);
  }
  /// Writes this warpgroup's part of dQ, in the order of its registers, and signals the thread that adds it. That
  /// thread makes it visible to the copy engine (the fence): here the fence would take 200 clocks, in which the tensor
  /// cores would run dry.
  FALCHION_DEVICE void put_dq(unsigned parity) {
    shared.empty_dq[warpgroup].wait(parity);
    auto* to = reinterpret_cast<float4*>(shared.dq[warpgroup]) + threadIdx.x % 128;
    CUTE_UNROLL
    for (int i = 0; i < size(rDq); i += 4) to[i / 4 * 128] = {rDq(i), rDq(i + 1), rDq(i + 2), rDq(i + 3)};
    __syncwarp();
    release(shared.full_dq[warpgroup]);
  }

  Scores rS, rDp;         // (64 keys, M) f32
  Keys rDk, rDv;          // (64 keys, D) f32
  Rows_ rDq;              // this warpgroup's part of (M, D) f32
  Rounded p, ds;          // (64 keys, M)
  std::uint32_t seen[2];  // only where `masked`
  bool masked;
  RingPosition<Config::kStagesQ> at;
  RingPosition<Config::kStagesGradO> at_grad_o;
  RingPosition<Config::kStagesDs> at_ds;
  RingPosition<Config::kWorks> at_work;

  const AttentionBackwardArgs& a;
  Shared& shared;
  const int warpgroup;
  const bool wants_q;
  const float unit;  // how much one unit of S is in the exponent of 2
};

/// The kernel. The last warpgroup has the loader, the guard, and two warps that add to the sums of grad_q.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    attention_backward(const __grid_constant__ AttentionBackwardArgs a, const __grid_constant__ BackwardDivisors by,
                       const __grid_constant__ BackwardMaps maps, int together, int all_heads, unsigned* counter) {
  extern __shared__ __align__(1024) unsigned char memory[];
  let_next_kernel_start();
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  const int warpgroup = cutlass::canonical_warp_group_idx();
  const bool loads = threadIdx.x == 128 * Config::kConsumers;
  if (loads) {
    shared.init_barriers(a.grad_q.data != nullptr);
    cutlass::arch::fence_barrier_init();
  }
  wait_for_earlier_kernels();
  if constexpr (!Config::kGoesOn) {
    const int tiles = by.tiles.divisor, heads = static_cast<int>(gridDim.x) / tiles;
    const int block = tile_of_block(static_cast<int>(blockIdx.x), tiles, heads, together);
    const auto t = BackwardTile::of<Owner::keys, Config::kKeys, Config::kRows>(a, by, block);
    if (t.own0 >= t.k.length) return;
    if (loads) {
      if (t.begin < t.end) {  // on their way before the other threads know the tile
        load_keys<Config>(maps.k, t, shared, 0);
        load_keys<Config>(maps.v, t, shared, 1);
      }
      write_work<Config>(a, t, shared.work[0]);
    }
  }
  __syncthreads();
  if (warpgroup == Config::kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<Config::kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
    const bool leader = threadIdx.x % 32 == 0;
    if (warp == 0 && leader) load_backward<Config>(a, maps, shared);
    if (warp == 1) guard_backward<Config>(a, by, maps, together, all_heads, counter, shared);
    if constexpr (Config::kGoesOn) {
      if (warp == 2 && leader) add_dq<Config>(a, _0{}, shared);
      if (warp == 3 && leader) add_dq<Config>(a, _1{}, shared);
    } else {
      if (warp >= 2 && leader) add_dq<Config>(a, warp - 2, shared);
    }
  } else {
    cutlass::arch::warpgroup_reg_alloc<Config::kConsumerRegisters>();
    BackwardConsumer<Config>(a, shared, warpgroup).run();
  }
}

}  // namespace falchion::sm90
