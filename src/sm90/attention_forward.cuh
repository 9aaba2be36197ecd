// src/sm90/attention_forward.cuh: softmax attention, forward, with TMA, wgmma and warp roles.   What: ref/.   Here:
// when. FlashAttention-3 (arXiv:2407.08608): one warp loads Q, K and V tiles through a ring in shared memory, each
// consumer warpgroup owns 64 query rows. Letters: docs/notation.md. What was measured: docs/design/sm90_forward.md
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "blocks/sm90_softmax.cuh"
#include "blocks/sm90_tma.cuh"
#include "blocks/stream_order.cuh"
#include "gpu/attention_tile.cuh"
#include "sm90/attention_forward_config.hpp"
#include "sm90/attention_schedule.hpp"
#include "sm90/attention_store.cuh"

namespace falchion::sm90 {

using namespace gpu;

struct TensorMaps {
  CUtensorMap q, k, v;
};

/// gridDim.x, asked for each time instead of kept in a register.
__device__ __forceinline__ int grid_size() {
  int ctas;
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(ctas));
  return ctas;
}

/// The scheduler, one warp: works out which tiles this CTA has, a few ahead of their use, for all others.
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
    const AttentionArgs* now = &a;
    asm volatile("" : "+l"(now));  // else what follows from the arguments alone is kept in registers: here are few
    const AttentionTile rows = AttentionTile::rows_of<Config::kRows>(*now, by, max(x, 0));
    if (x >= 0 && rows.row0 >= rows.rows) continue;
    if (leader) {
      tile.write_rows(rows);
      asm volatile("" ::: "memory");  // read again below
      AttentionTile t = tile.read(by);
      t.look<Config::kRows, Config::kKeys>(*now);
      tile.write_keys(t);
      if (x < 0) tile.row0 = TileRecord::kNoMore;
      shared.full_tile[at.stage].arrive();
    }
    at.advance();
  }
}

/// The producer, one thread: Q of a tile, then K and V from the last tile to the first (the last alone may be ragged).
/// V of a tile is asked for after K of the next, for S of that one is what the consumers want first.
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
    for (; --n > 0; row -= kKeys) load_k(row - kKeys), load_v(row);
    load_v(row);
  }
}

/// One consumer warpgroup: 64 rows of each tile, from Q to O.
template <class Config, class Scores>
class Consumer {
 public:
  using Element = typename Config::Element;
  using Shared = typename Config::Shared;
  static constexpr int kRows = Config::kRows, kKeys = Config::kKeys;

  __device__ __forceinline__ Consumer(const AttentionArgs& a, const Divisors& by, Shared& shared, int warpgroup)
      : a(a), by(by), shared(shared), warpgroup(warpgroup) {}

  /// All tiles of this CTA. S of a tile's first keys is started before O of the tile before is stored.
  __device__ __forceinline__ void run() {
    if (warpgroup == Config::kConsumers - 1) pass_turn();  // the first warpgroup begins
    bool more = find_tile();
    start_first_s(more);
    while (more) {
      softmax.reset();
      clear(rO);
      wait_multiply<0>(rS);
      walk();
      start_o();
      advance_v();
      give_back_tile();
      more = find_tile();
      start_first_s(more);
      wait_multiply<1>(rO);
      release(shared.empty_v[stage_v]);
      softmax.finish();
      store_tile<Config>(a, done().read(by), softmax, Scores::nats(a), rO);
    }
    wait_multiply<0>(rS);
  }

 private:
  /// The record goes back to the scheduler before this warp waits for the next one: any number of tiles without keys
  /// may come first, and the ring has only kTiles records. Where O is to go is all that is still asked of it.
  __device__ __forceinline__ void give_back_tile() {
    __syncwarp();  // every lane has stored the tile before
    if (threadIdx.x % 32 == 0) done() = shared.tile[at_tile.stage];
    release_tile();
  }
  __device__ __forceinline__ RowsRecord& done() const { return shared.done[threadIdx.x / 32]; }
  __device__ __forceinline__ void release_tile() {
    __syncwarp();  // every lane has read what it wants of the record
    release(shared.empty_tile[at_tile.stage]), at_tile.advance();
  }

  /// The next tile that has keys; rows that see none get their 0 on the way. false: there are no more.
  __device__ __forceinline__ bool find_tile() {
    for (;;) {
      shared.full_tile[at_tile.stage].wait(at_tile.parity);
      const TileRecord& tile = shared.tile[at_tile.stage];
      if (tile.row0 < 0) return false;
      if (tile.begin < tile.end) {
        skipped = count_unseen(tile);
        return true;
      }
      store_nothing<Config>(a, tile.RowsRecord::read(by));
      release_tile();
    }
  }

  /// Tiles of keys that the tile visits, but no row of this warpgroup sees: under a band the first rows of a tile see
  /// less than the last ones. One is kept in any case. Not where clear_v_past needs all warpgroups on the last tile.
  __device__ __forceinline__ int count_unseen(const TileRecord& t) const {
    if (Config::kConsumers == 1 || a.right < 0 || a.packed || a.used_k != nullptr) return 0;
    const int last = min(t.row0 + 64 * (warpgroup + 1), t.rows) - 1;
    const int end = static_cast<int>(max(t.mask.visible(0, by.group.div(last) + 1).end, std::int64_t{0}));
    return min(max(t.end - (end + kKeys - 1) / kKeys, 0), t.end - t.begin - 1);
  }

  /// All keys of a tile but the last product: S of its first keys has been started, P of its last is left to multiply.
  __device__ __forceinline__ void walk() {
    const TileRecord& t = shared.tile[at_tile.stage];
    int n = t.end - 1 - skipped;
    const int begin = t.begin;
    whole_begin = (t.unmasked_begin + kKeys - 1) / kKeys;
    whole_count = static_cast<unsigned>(max(t.unmasked_end / kKeys - whole_begin, 0));
    const Scores scores(a, t, by, coordinates());
    release_k();
    make_p<true>(scores, n);
    convert(rS, p);
    for (; skipped > 0; --skipped) {  // the others' turns go round meanwhile
      wait_v();
      release(shared.empty_v[at_v.stage]), at_v.advance();
      take_turn(), pass_turn();
    }
    wait_v();
    clear_v_past(n);
    for (--n; n >= begin; --n) {  // O += P V of tile n + 1 under the softmax of tile n
      wait_k();
      take_turn();
      start_s();
      start_o();
      pass_turn();
      wait_multiply<1>(rS);
      release(shared.empty_k[at_k.stage]);
      const bool raised = make_p<false>(scores, n);
      // Not before: ptxas would compute the next stages between take_turn and the first product, where each instruction
      // costs all warpgroups (d 64: 3 instructions there are 1 % of the time).
      at_k.advance(), advance_v();
      wait_v();  // not later: its branch keeps the compiler from waiting for O before the exponentials
      wait_o();
      if (raised) scale_rows(rows_columns(as_mma_accumulator(rO)), shrink);
      convert(rS, p);
    }
    release(shared.empty_q[at_q.stage]), at_q.advance();
  }

  /// (row, column) in the tile of each of this thread's elements of S.
  __device__ __forceinline__ static auto coordinates() {
    return rows_columns(typename Config::MmaOfRows{}
                            .get_thread_slice(threadIdx.x)
                            .partition_C(make_identity_tensor(Shape<Int<kRows>, Int<kKeys>>{})));
  }
  /// S -> P in place; true: O is to be scaled by shrink. kFirst: of the first keys.
  template <bool kFirst>
  __device__ __forceinline__ bool make_p(const Scores& scores, int n) {
    auto S = rows_columns(as_mma_accumulator(rS));  // (rows, columns)
    const auto cS = coordinates();
    scores.apply(S, cS, n * kKeys);
    if (static_cast<unsigned>(n - whole_begin) >= whole_count) {
      asm volatile("" ::: "memory");  // else the tile would be read before it is known whether anybody asks
      scores.keep(shared.tile[at_tile.stage].read(by), S, cS, n * kKeys);  // mask.keep
    }
    const bool raised = softmax.template start<kFirst>(S, scores.unit, shrink);
    CUTE_UNROLL
    for (int c = 0; c < size<1>(S); ++c) softmax.update(S, 0, c, scores.unit), softmax.update(S, 1, c, scores.unit);
    return raised;
  }

  /// After the last tile it multiplies whatever lies there: ptxas serialises products that only some branch starts.
  __device__ __forceinline__ void start_first_s(bool more) {
    if (more) {
      shared.full_q[at_q.stage].wait(at_q.parity);
      wait_k();
      for (int i = 0; i < skipped; ++i) release_k(), wait_k();
    }
    start_s();
  }
  __device__ __forceinline__ void start_s() {                                             // S = Q K^T
    const auto sQ = make_tensor(make_smem_ptr(shared.q[0]), typename Config::LayoutQ{});  // (M, D, stages)
    const auto sK = make_tensor(make_smem_ptr(shared.k[0]), typename Config::LayoutK{});  // (N, D, stages)
    const auto slice = MmaQk{}.get_slice(warpgroup * 128);
    const auto rQ = slice.partition_fragment_A(sQ);  // (1, 1, D / 16, stages)
    const auto rK = slice.partition_fragment_B(sK);  // (1, 1, D / 16, stages)
    start_multiply<true>(MmaQk{}, rQ(_, _, _, at_q.stage), rK(_, _, _, at_k.stage), rS);
  }
  __device__ __forceinline__ void start_o() {                                               // O += P V
    const auto sVt = make_tensor(make_smem_ptr(shared.v[0]), typename Config::LayoutVt{});  // (D, N, stages)
    const auto rV = MmaPv{}.get_slice(warpgroup * 128).partition_fragment_B(sVt);           // (1, 1, N / 16, stages)
    start_multiply<false>(MmaPv{}, as_wgmma_operand_a(p), rV(_, _, _, at_v.stage), rO);
  }
  __device__ __forceinline__ void advance_v() { stage_v = at_v.stage, at_v.advance(); }
  __device__ __forceinline__ void wait_o() {
    wait_multiply<0>(rO);
    release(shared.empty_v[stage_v]);
  }
  __device__ __forceinline__ void wait_k() { shared.full_k[at_k.stage].wait(at_k.parity); }
  __device__ __forceinline__ void wait_v() { shared.full_v[at_v.stage].wait(at_v.parity); }
  __device__ __forceinline__ void release_k() { release(shared.empty_k[at_k.stage]), at_k.advance(); }
  template <class Barrier>
  __device__ __forceinline__ static void release(Barrier& empty) {
    if (threadIdx.x % 32 == 0) empty.arrive();
  }

  // Ping-pong: while one warpgroup multiplies, the others do their softmax. They take turns in starting products.
  __device__ __forceinline__ void take_turn() const {
    if constexpr (Config::kPingPong) cutlass::arch::NamedBarrier::sync(256, warpgroup);
  }
  __device__ __forceinline__ void pass_turn() const {
    if constexpr (Config::kPingPong)
      cutlass::arch::NamedBarrier::arrive(256, warpgroup + 1 == Config::kConsumers ? 0 : warpgroup + 1);
  }

  /// Keys past the end weigh 0, but 0 times NaN is NaN: where TMA cannot know the end, their V becomes 0 by hand.
  __device__ __forceinline__ void clear_v_past(int n) const {
    if (!a.packed && a.used_k == nullptr) return;
    const int keys = shared.tile[at_tile.stage].k.length - n * kKeys;
    if (keys >= kKeys) return;
    auto* v = reinterpret_cast<uint4*>(shared.v[at_v.stage]);  // boxes of (N, kBox), chunks of 16 bytes
    for (int i = static_cast<int>(threadIdx.x); i < Config::kSizeV / 8; i += 128 * Config::kConsumers) {
      if (i / (Config::kBox / 8) % kKeys >= keys) v[i] = uint4{};
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(128 * Config::kConsumers, Config::kConsumers);
  }

  using MmaQk = typename Config::MmaQk;
  using MmaPv = typename Config::MmaPv;
  decltype(partition_fragment_C(MmaQk{}, Shape<Int<kRows>, Int<kKeys>>{})) rS;        // (64, N) f32
  decltype(partition_fragment_C(MmaPv{}, Shape<Int<kRows>, Int<Config::kDv>>{})) rO;  // (64, D) f32
  decltype(make_tensor<Element>(Layout<Int<kKeys / 2>>{})) p;                         // P (64, N) 16-bit
  std::conditional_t<Config::kMaximaByBits, SoftmaxByBits, Softmax> softmax;
  float shrink[2];
  RingPosition<Config::kStages> at_k, at_v;
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kTiles> at_tile;
  int stage_v = 0;  // of V of the product that runs; at_v is ahead of it from make_p on
  int skipped = 0;
  int whole_begin = 0;  // the first tile of keys that needs no mask, and how many there are
  unsigned whole_count = 0;

  const AttentionArgs& a;
  const Divisors& by;
  Shared& shared;
  const int warpgroup;
};

template <class Config, class Scores>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    attention_forward(const __grid_constant__ AttentionArgs a, const __grid_constant__ Divisors by,
                      const __grid_constant__ TensorMaps maps, const __grid_constant__ Schedule schedule) {
  extern __shared__ __align__(1024) unsigned char memory[];
  let_next_kernel_start();
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStagesQ; ++i) shared.full_q[i].init(1), shared.empty_q[i].init(4 * Config::kConsumers);
    for (int i = 0; i < Config::kTiles; ++i)
      shared.full_tile[i].init(1), shared.empty_tile[i].init(4 * Config::kConsumers + 1);
    for (int i = 0; i < Config::kStages; ++i) {
      shared.full_k[i].init(1), shared.empty_k[i].init(4 * Config::kConsumers);
      shared.full_v[i].init(1), shared.empty_v[i].init(4 * Config::kConsumers);
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  wait_for_earlier_kernels();
  if (warpgroup == Config::kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<Config::kProducerRegisters>();
    const unsigned thread = threadIdx.x - 128 * Config::kConsumers;
    if (thread == 0) produce<Config>(by, maps, shared);
    if (thread / 32 == 1) plan_tiles<Config>(a, by, schedule, shared);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Config::kConsumerRegisters>();
    Consumer<Config, Scores>(a, by, shared, warpgroup).run();
  }
}

}  // namespace falchion::sm90
