// src/sm90/attention_forward/fp8/kernel.cuh: forward softmax attention on Hopper with P V in e4m3. The scheduler and
// the producer are those of the 16-bit kernel; this file has the consumers, in the order of their steps.
// docs/design/sm90_fp8.md has the design, its error and the measurements.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/band.cuh"
#include "sm90/attention_forward/fp8/codes.cuh"
#include "sm90/attention_forward/fp8/config.hpp"
#include "sm90/attention_forward/kernel.cuh"
#include "sm90/attention_forward/scales.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// One consumer warpgroup, which has 64 rows of each tile, from Q to O.
///
/// The tensor cores add products of e4m3 with 13 bits behind the leading one and cut off the rest. So each product P V
/// has an accumulator of its own, Ot, which is added to O in f32.
template <class Config>
class Fp8Consumer {
 public:
  using Shared = typename Config::Shared;
  static constexpr int kRows = Config::kRows, kKeys = Config::kKeys, kDv = Config::kDv;

  FALCHION_DEVICE Fp8Consumer(const AttentionArgs& a, const Divisors& by, Shared& shared, int warpgroup)
      : a(a), by(by), shared(shared), warpgroup(warpgroup) {}

  /// As Consumer::run of kind plain.
  FALCHION_DEVICE void run() {
    write_ones();
    if (warpgroup == Config::kConsumers - 1) pass_turn();  // the first turn goes to warpgroup 0
    bool more = find_tile();
    start_first_s(more);
    while (more) {
      clear(rO);
      clear(rOt);
      softmax.reset();
      wait_multiply<0>(rS);
      walk();
      start_ot();
      advance_v();
      give_back_tile();
      more = find_tile();
      start_first_s(more);
      wait_multiply<1>(rOt);
      release(shared.empty_v[stage_v]);
      add_ot();
      store();
    }
    wait_multiply<0>(rS);
  }

 private:
  /// The rows below V^T. All consumers write the same, and none multiplies before all have.
  FALCHION_DEVICE void write_ones() const {
    constexpr std::uint32_t kOnes = 0x38383838;  // four times e4m3's 1
    CUTE_UNROLL
    for (int stage = 0; stage < Config::kStages; ++stage) {
      auto* const to = reinterpret_cast<uint4*>(shared.v[stage].ones);
      for (int i = static_cast<int>(threadIdx.x); i < Config::kSizeOnes / 16; i += 128 * Config::kConsumers)
        to[i] = {kOnes, kOnes, kOnes, kOnes};
    }
    publish_to_async();
    cutlass::arch::NamedBarrier::sync(128 * Config::kConsumers, Config::kConsumers);
  }
  /// As those of kind plain.
  FALCHION_DEVICE void give_back_tile() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) done() = shared.tile[at_tile.stage];
    release_tile();
  }
  FALCHION_DEVICE RowsRecord& done() const { return shared.done[threadIdx.x / 32]; }
  FALCHION_DEVICE void release_tile() {
    __syncwarp();
    release(shared.empty_tile[at_tile.stage]);
    at_tile.advance();
  }
  FALCHION_DEVICE bool find_tile() {
    for (;;) {
      shared.full_tile[at_tile.stage].wait(at_tile.parity);
      const TileRecord& tile = shared.tile[at_tile.stage];
      if (tile.row0 < 0) return false;
      if (tile.begin < tile.end) {
        skipped = count_unseen(tile);
        return true;
      }
      store_empty(tile.RowsRecord::read(by));
      release_tile();
    }
  }
  FALCHION_DEVICE int count_unseen(const TileRecord& t) const {
    if (a.right < 0 || a.packed || a.used_k != nullptr) return 0;
    return t.unseen<kKeys>(by, 64 * (warpgroup + 1));
  }

  /// Goes over the tiles of keys, from the last to the first. On entry S of the first of them is done. On exit P of the
  /// last of them is ready, and the caller starts its product with V.
  FALCHION_DEVICE void walk() {
    const TileRecord& t = shared.tile[at_tile.stage];
    int n = t.end - 1 - skipped;
    find_row_units(t);
    const TileUnits units = units_of(n);
    release_k();
    make_codes(n, units);
    make_p();
    for (; skipped > 0; --skipped) {
      wait_v();
      __syncwarp();  // all lanes see that V has arrived
      release(shared.empty_v[at_v.stage]);
      at_v.advance();
      take_turn();
      pass_turn();
    }
    wait_v();
    for (--n; n >= begin_of_keys(); --n) {
      wait_k();
      take_turn();
      start_s();   // S = Q K^T
      add_ot();    // O += Ot, of tile n + 2
      start_ot();  // Ot = P V, of tile n + 1
      pass_turn();
      const TileUnits units = units_of(n);
      advance_v();
      wait_multiply<1>(rS);
      release_k();
      make_codes(n, units);
      wait_v();  // its branch keeps ptxas from moving the wait for Ot up
      wait_multiply<0>(rOt);
      release(shared.empty_v[stage_v]);
      make_p();
    }
    add_ot();
    release(shared.empty_q[at_q.stage]);
    at_q.advance();
  }

  // Each tile of keys reads these from the record, since there are no registers for them.
  FALCHION_DEVICE int begin_of_keys() const { return read_record(&TileRecord::begin); }
  /// Whether some row of the tile does not see some key of tile n of the keys.
  FALCHION_DEVICE bool is_masked(int n) const {
    return n * kKeys < read_record(&TileRecord::unmasked_begin) ||
           (n + 1) * kKeys > read_record(&TileRecord::unmasked_end);
  }
  FALCHION_DEVICE int read_record(int TileRecord::*of) const {
    int x;
    asm volatile("ld.shared.s32 %0, [%1];"
                 : "=r"(x)
                 : "r"(cute::cast_smem_ptr_to_uint(&(shared.tile[at_tile.stage].*of))));
    return x;
  }
  static FALCHION_DEVICE auto coordinates() {
    return rows_columns(typename Config::MmaOfRows{}
                            .get_thread_slice(threadIdx.x)
                            .partition_C(make_identity_tensor(Shape<Int<kRows>, Int<kKeys>>{})));
  }
  /// Writes the scales of this thread's rows of Q, in eighths of a bit, to where row_unit reads them.
  FALCHION_DEVICE void find_row_units(const TileRecord& tile) {
    const auto at = coordinates();
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = static_cast<int>(get<0>(at(r, 0)));
      shared.row_units[threadIdx.x][r] = 8 * scale_of_row(a, tile, by, min(tile.row0 + row, tile.rows - 1));
    }
  }
  FALCHION_DEVICE float2 row_units() const {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x.x), "=f"(x.y)
                 : "r"(cute::cast_smem_ptr_to_uint(&shared.row_units[threadIdx.x]))
                 : "memory");
    return x;
  }
  /// The scale of the stage of K, with that of the problem.
  FALCHION_DEVICE float unit_of_k() const {
    float unit;
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(unit)
                 : "r"(cute::cast_smem_ptr_to_uint(&shared.words[at_k.parity][at_k.stage])));
    return unit;
  }
  /// What is read ahead of the wait for S: the unit of S of each row, in eighths of a bit, and is_masked.
  struct TileUnits {
    float c[2];
    bool masked;
  };
  FALCHION_DEVICE TileUnits units_of(int n) const {
    const float unit = unit_of_k();
    const float2 of_rows = row_units();
    return {{of_rows.x * unit, of_rows.y * unit}, is_masked(n)};
  }
  /// S becomes codes.
  FALCHION_DEVICE void make_codes(int n, const TileUnits& units) {
    auto x = floats_of_s();
    if constexpr (!std::is_same_v<typename Config::SumQk, float>) {
      CUTE_UNROLL
      for (int i = 0; i < size(rS); ++i) x(i) = static_cast<float>(rS(i));
    }
    CUTE_UNROLL
    for (int i = 0; i < size(x); ++i) x(i) = fmaf(x(i), units.c[row_of(i)], softmax.addend[row_of(i)]);
    auto X = rows_columns(as_mma_accumulator(x));
    if (units.masked) {
      asm volatile("" ::: "memory");  // keeps the compiler from reading the record before it knows that it is needed
      keep_band(a, shared.tile[at_tile.stage].read(by), X, coordinates(), n * kKeys);  // mask.keep
    }
    softmax.find_codes(X, rows_columns(as_mma_accumulator(rO)));
  }
  FALCHION_DEVICE auto floats_of_s() {
    if constexpr (std::is_same_v<typename Config::SumQk, float>) {
      return make_tensor(rS.data(), rS.layout());
    } else {
      return recast<float>(rS);
    }
  }
  /// P from codes. Within each 16 keys V^T has them in an order in which a thread's accumulators of S are its operand.
  FALCHION_DEVICE void make_p() {
    const auto x = floats_of_s();
    auto words = recast<std::uint32_t>(p);
    CUTE_UNROLL
    for (int i = 0; i < size(words); ++i) {
      const int from = i / 2 * 8 + i % 2 * 2;
      words(i) = pack_codes(x(from), x(from + 1), pack_codes(x(from + 4), x(from + 5), 0));
    }
  }
  /// O += Ot, and the same for the sums of P.
  FALCHION_DEVICE void add_ot() {
    CUTE_UNROLL
    for (int i = 0; i < size(rO); ++i) rO(i) = fmaf(rOt(i), softmax.of_ot[row_of(i)], rO(i));
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) softmax.l[r] = fmaf(rOt(size(rO) + 2 * r), softmax.of_ot[r], softmax.l[r]);
  }

  /// O of the tile whose record was given back.
  FALCHION_DEVICE void store() {
    const AttentionTile t = done().read(by);
    softmax.finish(rO);
    float scale_v = 1;
    if (a.v_scale.data != nullptr)
      scale_v = static_cast<const float*>(
          a.v_scale.data)[t.q.batch * a.v_scale.stride[0] + by.ratio.div(t.h) * a.v_scale.stride[2]];
    store_tile<OutputConfig>(a, t, softmax, 1.f, rO, [=](float factor) { return with_scale_of_v(factor, scale_v); });
  }
  FALCHION_DEVICE void store_empty(const AttentionTile& t) const {
    auto zeros = make_tensor<float>(Layout<Int<kDv / 2>>{});
    clear(zeros);
    CodesSoftmax none;
    none.reset();
    store_tile<OutputConfig>(a, t, none, 1.f, zeros);
  }
  struct OutputConfig : Config {
    using Element = Of16Bits;
  };

  /// As Consumer::start_first_s of kind plain.
  FALCHION_DEVICE void start_first_s(bool more) {
    if (more) {
      shared.full_q[at_q.stage].wait(at_q.parity);
      wait_k();
      for (int i = 0; i < skipped; ++i) {
        __syncwarp();
        release_k();
        wait_k();
      }
    }
    start_s();
  }
  FALCHION_DEVICE void start_s() {
    const auto sQ = make_tensor(make_smem_ptr(shared.q[0]), typename Config::LayoutQ{});  // (M, D, stages)
    const auto sK = make_tensor(make_smem_ptr(shared.k[0]), typename Config::LayoutK{});  // (N, D, stages)
    const auto slice = MmaQk{}.get_slice(warpgroup * 128);
    const auto rQ = slice.partition_fragment_A(sQ);  // (1, 1, D / 32, stages)
    const auto rK = slice.partition_fragment_B(sK);  // (1, 1, D / 32, stages)
    start_multiply<true>(MmaQk{}, rQ(_, _, _, at_q.stage), rK(_, _, _, at_k.stage), rS);
  }
  FALCHION_DEVICE void start_ot() {
    const auto sVt = make_tensor(make_smem_ptr(shared.v[0].v), typename Config::LayoutVt{});  // (D + 8, N, stages)
    const auto rV = MmaPv{}.get_slice(warpgroup * 128).partition_fragment_B(sVt);             // (1, 1, N / 32, stages)
    using OperandA = Layout<Shape<Shape<_4, _2, _2>, _1, Int<kKeys / 32>>, Stride<Stride<_1, _4, _8>, _0, _16>>;
    start_multiply<true>(MmaPv{}, make_tensor(p.data(), OperandA{}), rV(_, _, _, at_v.stage), rOt);
    softmax.start_ot();
  }
  FALCHION_DEVICE void advance_v() {
    stage_v = at_v.stage;
    at_v.advance();
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
  FALCHION_DEVICE void take_turn() const { cutlass::arch::NamedBarrier::sync(256, warpgroup); }
  FALCHION_DEVICE void pass_turn() const { cutlass::arch::NamedBarrier::arrive(256, 1 - warpgroup); }
  static_assert(Config::kConsumers == 2 && Config::kTurns == Turns::always);

  using MmaQk = typename Config::MmaQk;
  using MmaPv = typename Config::MmaPv;
  decltype(partition_fragment_C(MmaQk{}, Shape<Int<kRows>, Int<kKeys>>{})) rS;                 // (64, N) f32 or s32
  decltype(partition_fragment_C(MmaPv{}, Shape<Int<kRows>, Int<kDv + Config::kOnes>>{})) rOt;  // (64, D + 8) f32
  decltype(make_tensor<float>(Layout<Int<kDv / 2>>{})) rO;                                     // (64, D) f32
  decltype(make_tensor<e4m3>(Layout<Int<kKeys / 2>>{})) p;                                     // P (64, N)
  CodesSoftmax softmax;
  RingPosition<Config::kStages> at_k, at_v;
  RingPosition<Config::kStagesQ> at_q;
  RingPosition<Config::kTiles> at_tile;
  int stage_v = 0;  // the stage whose V the running product reads
  int skipped = 0;  // the number of tiles of keys that this warpgroup skips (count_unseen)

  const AttentionArgs& a;
  const Divisors& by;
  Shared& shared;
  const int warpgroup;
};

}  // namespace falchion::sm90
