// src/sm90/attention_forward/kernel.cuh: forward softmax attention on Hopper with TMA, wgmma and warp roles, after
// FlashAttention-3 (arXiv:2407.08608). ref/ defines the result; this file gives the order of the steps. A scheduler
// warp works out the tiles, a producer thread loads Q, K and V through rings in shared memory, and each consumer
// warpgroup owns 64 query rows. docs/design/sm90_forward.md has the schedule, the waits between the roles, and the
// measurements; docs/notation.md explains the letters.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_softmax.cuh"
#include "gpu/blocks/stream_order.cuh"
#include "sm90/attention_forward/load.cuh"
#include "sm90/attention_forward/load_pages.cuh"
#include "sm90/attention_forward/store.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// One consumer warpgroup, which has 64 rows of each tile, from Q to O.
template <class Config, class Scores>
class Consumer {
 public:
  using Element = typename Config::Element;
  using Shared = typename Config::Shared;
  static constexpr int kRows = Config::kRows, kKeys = Config::kKeys;

  FALCHION_DEVICE Consumer(const AttentionArgs& a, const Divisors& by, Shared& shared, int warpgroup)
      : a(a),
        by(by),
        shared(shared),
        warpgroup(warpgroup),
        turns(Config::kTurns == Turns::always ||
              (Config::kTurns == Turns::without_a_band && a.left < 0 && a.right < 0)) {}

  /// Goes through all tiles of this CTA. For each it waits for its first S, walks over the keys, and starts the last
  /// product P V. Then it releases the record, waits for the record of the next tile with keys, and for its Q and K,
  /// and starts its first S. Only then does it wait for O, release V and store O, while that S is computed.
  FALCHION_DEVICE void run() {
    if (warpgroup == Config::kConsumers - 1) pass_turn();  // the first turn goes to warpgroup 0
    bool more = find_tile();
    start_first_s(more);
    while (more) {
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
  /// Releases the record to the scheduler before this warp waits for the next record. Otherwise the two could deadlock,
  /// since any number of tiles without keys may come first and the ring has only kTiles records. The warp keeps a copy
  /// of what it still needs: the place of O.
  FALCHION_DEVICE void give_back_tile() {
    __syncwarp();  // all lanes have stored the previous tile
    if (threadIdx.x % 32 == 0) done() = shared.tile[at_tile.stage];
    release_tile();
  }
  FALCHION_DEVICE RowsRecord& done() const { return shared.done[threadIdx.x / 32]; }
  FALCHION_DEVICE void release_tile() {
    __syncwarp();  // all lanes have read what they need of the record
    release(shared.empty_tile[at_tile.stage]);
    at_tile.advance();
  }

  /// Waits for the record of the next tile that has keys, and stores the zeros of tiles without keys on the way.
  /// Returns false if there are no more tiles.
  FALCHION_DEVICE bool find_tile() {
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

  /// The number of tiles of keys, at the end of the range, that this warpgroup skips because none of its rows sees
  /// them: under a band the first rows of a tile see fewer keys than the last ones. It always visits at least one tile,
  /// and skips none where clear_v_past needs all warpgroups at the last tile.
  FALCHION_DEVICE int count_unseen(const TileRecord& t) const {
    if (Config::kConsumers == 1 || a.right < 0 || a.packed || a.used_k != nullptr) return 0;
    return t.unseen<kKeys>(by, 64 * (warpgroup + 1));
  }

  /// Goes over the tiles of keys, from the last to the first. On entry S of the first of them is done. On exit P of the
  /// last of them is ready, and the caller starts its product with V.
  FALCHION_DEVICE void walk() {
    const TileRecord& t = shared.tile[at_tile.stage];
    int n = t.end - 1 - skipped;
    const int begin = t.begin;
    whole_begin = (t.unmasked_begin + kKeys - 1) / kKeys;
    whole_count = static_cast<unsigned>(max(t.unmasked_end / kKeys - whole_begin, 0));
    Scores scores(a, t, by, coordinates());
    const unsigned word = word_of_k();
    release_k();
    make_first_p(scores, n, word);
    // The warpgroup releases V of the tiles that it skips, and passes its turns on, since the others wait for both.
    for (; skipped > 0; --skipped) {
      wait_v();
      __syncwarp();  // all lanes see that V has arrived; no other instruction here synchronises the warp
      release(shared.empty_v[at_v.stage]);
      at_v.advance();
      take_turn();
      pass_turn();
    }
    wait_v();
    clear_v_past(n);
    for (--n; n >= begin; --n) {  // O += P V of tile n + 1 runs under the softmax of tile n
      wait_k();
      take_turn();
      start_s();  // S = Q K^T
      start_o();  // O += P V, of tile n + 1
      pass_turn();
      const unsigned word = word_of_k();
      wait_multiply<1>(rS);
      release(shared.empty_k[at_k.stage]);
      if constexpr (Scores::kLate) {
        scores.start_tile(word);
      } else {
        make_scores(scores, n, word);  // -inf where a row does not see a key
      }
      // Advance the positions no earlier: ptxas would compute the next stages between take_turn and the first product,
      // where each instruction delays all warpgroups (at d 64, 3 instructions there are 1 % of the time).
      at_k.advance();
      advance_v();
      make_p(scores, n);  // P = e^(scale S - m); O and l shrink where m rises
    }
    release(shared.empty_q[at_q.stage]);
    at_q.advance();
  }

  /// The coordinates (row, column) in the tile of each of this thread's elements of S.
  static FALCHION_DEVICE auto coordinates() {
    return rows_columns(typename Config::MmaOfRows{}
                            .get_thread_slice(threadIdx.x)
                            .partition_C(make_identity_tensor(Shape<Int<kRows>, Int<kKeys>>{})));
  }
  /// S in f32, which takes the place of integers.
  FALCHION_DEVICE auto scores_of_s() {
    if constexpr (std::is_same_v<typename Config::SumQk, float>) {
      return make_tensor(rS.data(), rS.layout());
    } else {
      return recast<float>(rS);
    }
  }
  /// Whether some row of the tile does not see some key of tile n of the keys.
  FALCHION_DEVICE bool is_masked(int n) const { return static_cast<unsigned>(n - whole_begin) >= whole_count; }
  /// Turns the dot products in S into scores. Masked keys get -inf.
  FALCHION_DEVICE void make_scores(Scores& scores, int n, unsigned word) {
    auto rF = scores_of_s();
    auto S = rows_columns(as_mma_accumulator(rF));  // (rows, columns)
    const auto cS = coordinates();
    if constexpr (Scores::kLate) {
      CUTE_UNROLL
      for (int i = 0; i < size(rS); ++i) rF(i) = static_cast<float>(rS(i));
    }
    scores.apply(S, cS, n * kKeys);
    hide_holes(word, S);
    if (!is_masked(n)) return;
    asm volatile("" ::: "memory");  // keeps the compiler from reading the record before it knows that it is needed
    scores.keep(shared.tile[at_tile.stage].read(by), S, cS, n * kKeys);  // mask.keep
  }
  /// The word of the stage of K: which keys are in pages that are not there, or the unit of S.
  FALCHION_DEVICE unsigned word_of_k() const {
    unsigned word = 0;
    if constexpr (Config::kPages || Config::kScaled) {
      asm volatile("ld.shared.u32 %0, [%1];"
                   : "=r"(word)
                   : "r"(cute::cast_smem_ptr_to_uint(&shared.words[at_k.parity][at_k.stage])));
    }
    return word;
  }
  /// S (rows, columns) = -inf at these keys. A thread has two neighbours of each 8 of them. It is a loop that runs at
  /// most once, because ptxas would turn an `if` into a select for each element.
  template <class S>
  static FALCHION_DEVICE void hide_holes(unsigned holes, S& s) {
    static_assert(kLeastPiece == 8);
    if constexpr (Config::kPages) {
      CUTE_NO_UNROLL
      for (unsigned now = holes; now != 0; now = 0) {
        CUTE_UNROLL
        for (int c = 0; c < size<1>(s); ++c) {
          const bool hidden = (holes >> c / 2 & 1U) != 0;
          CUTE_UNROLL
          for (int r = 0; r < size<0>(s); ++r) s(r, c) = hidden ? -FALCHION_INF : s(r, c);
        }
      }
    }
  }
  /// P of the first tile of keys, which initialises the softmax (m, l).
  FALCHION_DEVICE void make_first_p(Scores& scores, int n, unsigned word) {
    if constexpr (Scores::kLate) scores.start_tile(word);
    make_scores(scores, n, word);
    auto rF = scores_of_s();
    softmax.start_tile(rows_columns(as_mma_accumulator(rF)), scores.unit);
    TileSums sums;
    make_pairs(0, rF, scores, sums);
    softmax.add(sums);
  }
  /// P of the next keys from their scores. The first kEarly exponentials are computed while O += P V still runs, whose
  /// P must stay in its registers until then. The wait for V of these keys is placed between them and the wait for O,
  /// because its branch keeps ptxas from moving the wait for O up to the first exponential. Where kEarly is 0, the wait
  /// for V comes last.
  FALCHION_DEVICE void make_p(Scores& scores, int n) {
    constexpr int kEarly = Config::kEarly;
    TileSums sums;
    float early[kEarly + 1];
    CUTE_UNROLL
    for (int i = 0; i < kEarly; ++i) early[i] = softmax.update(rS(i), i, scores.unit_of(i), sums);
    if constexpr (kEarly > 0) wait_v();
    wait_o();
    CUTE_UNROLL
    for (int i = 0; i < kEarly; i += 2) put_pair(i, early[i], early[i + 1]);
    make_pairs(kEarly, rS, scores, sums);
    bool late = false;
    if constexpr (Scores::kLate) late = is_masked(n) || scores.is_more_than_scaled();
    if (softmax.outgrown(sums) || late) {
      if constexpr (Scores::kLate) make_scores(scores, n, 0);
      if (late) sums = TileSums::unknown();
      auto rF = scores_of_s();
      float shrink[2];
      softmax.raise(rows_columns(as_mma_accumulator(rF)), sums, scores.unit, shrink);
      scale_rows(rows_columns(as_mma_accumulator(rO)), shrink);
      sums = {};
      make_pairs(0, rF, scores, sums);
    }
    softmax.add(sums);
    if constexpr (kEarly == 0) wait_v();
  }
  /// P of the elements of S from number `from` on, two at a time.
  template <class S>
  FALCHION_DEVICE void make_pairs(int from, const S& s, const Scores& scores, TileSums& sums) {
    CUTE_UNROLL
    for (int i = from; i < size(s); i += 2) {
      const float x = softmax.update(s(i), i, scores.unit_of(i), sums);
      put_pair(i, x, softmax.update(s(i + 1), i + 1, scores.unit_of(i + 1), sums));
    }
  }
  /// Rounds P of elements i and i + 1 to 16 bits.
  FALCHION_DEVICE void put_pair(int i, float x, float y) {
    recast<cutlass::Array<Element, 2>>(p)(i / 2) = cutlass::NumericArrayConverter<Element, float, 2>::convert({x, y});
  }

  /// Starts S of the first keys of a tile, after skipping the tiles that the warpgroup does not see. Without a tile
  /// (more is false) it multiplies stale data: ptxas serialises all products if a product is started in one branch
  /// only.
  FALCHION_DEVICE void start_first_s(bool more) {
    if (more) {
      shared.full_q[at_q.stage].wait(at_q.parity);
      wait_k();
      for (int i = 0; i < skipped; ++i) {
        __syncwarp();  // all lanes see that K has arrived
        release_k();
        wait_k();
      }
    }
    start_s();
  }
  FALCHION_DEVICE void start_s() {                                                        // S = Q K^T
    const auto sQ = make_tensor(make_smem_ptr(shared.q[0]), typename Config::LayoutQ{});  // (M, D, stages)
    const auto sK = make_tensor(make_smem_ptr(shared.k[0]), typename Config::LayoutK{});  // (N, D, stages)
    const auto slice = MmaQk{}.get_slice(warpgroup * 128);
    const auto rQ = slice.partition_fragment_A(sQ);  // (1, 1, D / 16, stages)
    const auto rK = slice.partition_fragment_B(sK);  // (1, 1, D / 16, stages)
    start_multiply<true>(MmaQk{}, rQ(_, _, _, at_q.stage), rK(_, _, _, at_k.stage), rS);
  }
  FALCHION_DEVICE void start_o() {                                                          // O += P V
    const auto sVt = make_tensor(make_smem_ptr(shared.v[0]), typename Config::LayoutVt{});  // (D, N, stages)
    const auto rV = MmaPv{}.get_slice(warpgroup * 128).partition_fragment_B(sVt);           // (1, 1, N / 16, stages)
    start_multiply<false>(MmaPv{}, as_wgmma_operand_a(p), rV(_, _, _, at_v.stage), rO);
  }
  FALCHION_DEVICE void advance_v() {
    stage_v = at_v.stage;
    at_v.advance();
  }
  FALCHION_DEVICE void wait_o() {
    wait_multiply<0>(rO);
    release(shared.empty_v[stage_v]);
  }
  FALCHION_DEVICE void wait_k() { shared.full_k[at_k.stage].wait(at_k.parity); }
  FALCHION_DEVICE void wait_v() { shared.full_v[at_v.stage].wait(at_v.parity); }
  FALCHION_DEVICE void release_k() {
    release(shared.empty_k[at_k.stage]);
    at_k.advance();
  }
  template <class Barrier>
  static FALCHION_DEVICE void release(Barrier& empty) {
    if (threadIdx.x % 32 == 0) empty.arrive();
  }

  // Ping-pong (where `turns` is true): the warpgroups take turns in starting products, so that one multiplies while the
  // others do their softmax. take_turn waits for the pass_turn of the previous warpgroup.
  FALCHION_DEVICE void take_turn() const {
    if (turns) cutlass::arch::NamedBarrier::sync(256, warpgroup);
  }
  FALCHION_DEVICE void pass_turn() const {
    if (turns) cutlass::arch::NamedBarrier::arrive(256, warpgroup + 1 == Config::kConsumers ? 0 : warpgroup + 1);
  }

  /// Sets V of the keys past the end to 0 where TMA cannot know the end (packed sequences, used lengths). P of these
  /// keys is 0, but their V may be NaN, and 0 times NaN is NaN. All consumers clear together and then wait for each
  /// other.
  FALCHION_DEVICE void clear_v_past(int n) const {
    if (!a.packed && a.used_k == nullptr) return;
    const int keys = shared.tile[at_tile.stage].k.length - n * kKeys;
    if (keys >= kKeys) return;
    auto* v = reinterpret_cast<uint4*>(shared.v[at_v.stage]);  // boxes of (N, kBoxV), in chunks of 16 bytes
    for (int i = static_cast<int>(threadIdx.x); i < Config::kSizeV / 8; i += 128 * Config::kConsumers) {
      if (i / (Config::kBoxV / 8) % kKeys >= keys) v[i] = uint4{};
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(128 * Config::kConsumers, Config::kConsumers);
  }

  using MmaQk = typename Config::MmaQk;
  using MmaPv = typename Config::MmaPv;
  decltype(partition_fragment_C(MmaQk{}, Shape<Int<kRows>, Int<kKeys>>{})) rS;        // (64, N) f32 or s32
  decltype(partition_fragment_C(MmaPv{}, Shape<Int<kRows>, Int<Config::kDv>>{})) rO;  // (64, D) f32
  decltype(make_tensor<Element>(Layout<Int<kKeys / 2>>{})) p;                         // P (64, N) 16-bit
  typename Scores::Softmax softmax;
  RingPosition<Config::kStages> at_k, at_v;
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kTiles> at_tile;
  int stage_v = 0;           // the stage whose V the running product reads; at_v is ahead of it from make_p on
  int skipped = 0;           // the number of tiles of keys that this warpgroup skips (count_unseen)
  int whole_begin = 0;       // the first tile of keys that needs no mask
  unsigned whole_count = 0;  // how many tiles of keys need none

  const AttentionArgs& a;
  const Divisors& by;
  Shared& shared;
  const int warpgroup;
  const bool turns;  // the warpgroups take turns
};

/// The kernel. The last warpgroup has the producer thread and the scheduler warp; all others are consumers. Consumer_
/// is their class: Consumer above, or HalvesConsumer of attention_forward/halves/kernel.cuh.
template <class Config, class Consumer_>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    attention_forward(const __grid_constant__ AttentionArgs a, const __grid_constant__ Divisors by,
                      const __grid_constant__ TensorMaps maps, const __grid_constant__ Schedule schedule,
                      std::uint64_t launch) {
  extern __shared__ __align__(1024) unsigned char memory[];
  let_next_kernel_start();
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStagesQ; ++i) {
      shared.full_q[i].init(1);
      shared.empty_q[i].init(4 * Config::kConsumers);
    }
    shared.wanted.init(1);
    for (int i = 0; i < Config::kTiles; ++i) {
      shared.full_tile[i].init(1);
      shared.empty_tile[i].init(4 * Config::kConsumers + Config::kProducers);
    }
    for (int i = 0; i < Config::kStages; ++i) {
      shared.full_k[i].init(1);
      shared.empty_k[i].init(4 * Config::kConsumers);
      shared.full_v[i].init(1);
      shared.empty_v[i].init(4 * Config::kConsumers);
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  wait_for_earlier_kernels();
  if (warpgroup == Config::kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<Config::kProducerRegisters>();
    const unsigned thread = threadIdx.x - 128 * Config::kConsumers;
    if constexpr (Config::kPages) {
      if (thread / 32 == 0) PageProducer<Config, false>(a, by, maps, shared).run();
      if (thread / 32 == 2) PageProducer<Config, true>(a, by, maps, shared).run();
    } else {
      if (thread == 0) produce<Config>(a, by, maps, shared);
    }
    if (thread / 32 == 1) plan_tiles<Config>(a, by, schedule, launch, shared);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Config::kConsumerRegisters>();
    Consumer_(a, by, shared, warpgroup).run();
  }
}

}  // namespace falchion::sm90
