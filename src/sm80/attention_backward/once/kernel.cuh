// src/sm80/attention_backward/once/kernel.cuh: the backward pass of softmax attention on mma.sync in five products. A
// CTA owns a tile of keys, whose grad_k and grad_v stay in registers, and walks over the tiles of query rows that see
// them. ref/ defines the result; this file gives the order of the steps. docs/design/sm80_backward.md has the
// measurements.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_backward/order.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "sm80/attention_backward/once/load.cuh"
#include "sm80/attention_backward/once/sums.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// The work of one warp.
template <class Config>
class BackwardWarp {
 public:
  using Element = typename Config::Element;
  using Shared = typename Config::Shared;
  static constexpr int kD = Config::kD, kKeys = Config::kKeys, kRows = Config::kRows, kHalf = Config::kHalf;

  FALCHION_DEVICE BackwardWarp(const AttentionBackwardArgs& a, Shared& shared)
      : warp_(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0)),
        down_(LaneBlocks::down_first(lane())),
        a(a),
        t(shared.tile),
        shared(shared) {}

  FALCHION_DEVICE void run() {
    clear(dk);
    clear(dv);
    if (t.begin < t.end) visit();
    if (a.grad_k.data == nullptr) return;
    store(dk, a.grad_k, static_cast<int>(a.d_qk), a.scale);
    store(dv, a.grad_v, static_cast<int>(a.d_v), 1);
  }

 private:
  static constexpr int kBlocks = kHalf / 16;              // of 16 rows, in this warp's half of the rows
  static constexpr int kWords = kBlocks * 8;              // of P or dS in a lane, two elements each
  static constexpr int kColumns = kD / 2;                 // of dK and dV in this warp
  static constexpr int kSteps = 16;                       // of each of the five products, with four mma each
  static constexpr int kStepsOfBlock = kSteps / kBlocks;  // in which a block of P or dS is made
  // How many steps ahead operands are loaded, limited by the registers.
  static constexpr bool kEarly = kD == 64;
  static constexpr int kAhead = kEarly ? 2 : 1;
  static constexpr int kKeysOfBits = 16 / (kHalf / 8);  // how many of the four keys of a lane share a word of `seen`
  using Scores = Sums[2][kHalf / 8];
  using Keys = Sums[2][kColumns / 8];
  using Rounded = Block[kBlocks][2];
  static_assert(kD / 16 * kBlocks == kSteps && kRows / 16 * (kColumns / 16) == kSteps && kKeys / 16 * 2 == kSteps);

  FALCHION_DEVICE void visit() {
    const RowLoader<Config> loader = this->loader();
    if (threadIdx.x < Config::kStrips)
      shared.whole[threadIdx.x] = loader.rows_that_see_all(t.own0 + 32 * static_cast<int>(threadIdx.x));
    if (threadIdx.x == 0) {
      for (auto& barrier : shared.p_there) barrier.init(2);
      shared.ds_there.init(Config::kWarps);
      shared.done.init(Config::kWarps);
      shared.head = loader.head_of_rows();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.rows[0] = loader.first_rows();
      shared.rows[1] = loader.rows_after(shared.rows[0]);
    }
    load_side<Config, kKeys, true>(a, Side<Element>::of_keys(a, t.k, t.h_kv), t.own0, shared.k, shared.v);
    __syncthreads();
    loader.load_q(shared.rows[0], 0);
    loader.load_grad_o(shared.rows[0], 0);
    loader.load_statistics(shared.rows[0], 0);
    cp_async_fence();
    cp_async_wait<0>();
    __syncthreads();
    const int steps = __shfl_sync(~0u, loader.steps(), 0);  // the shuffle tells ptxas that it is the same in all lanes
    CUTE_NO_UNROLL
    for (int step = 0; step < steps; ++step) {
      const int stage = step % 2, parity = stage;  // of the tiles of rows, and of the barriers' phases
      const bool dead = loader.clear_what_counts_for_nothing(stage);
      const bool masked = dead || !sees_all(step);
      const bool puts = wants_q() && step > 0, more = step + 1 < steps;
      if (puts) wait_turn(step - 1);
      multiply_scores(s, kAtK, kAtQ + stage * kTileOfRows, [&](int n) {  // S^T = K Q^T
        if (puts && n == 0) put_dq(step - 1, 0);
        if (puts && n == 4) put_dq(step - 1, 1);
      });
      if (step > 0) shared.done.wait(parity ^ 1);
      if (masked) find_seen(rows_of(step).tile * kRows + half() * kHalf, shared.delta[stage] + half() * kHalf, dead);
      const float unit = a.scale * kLog2e;                                    // of S, in the exponent of 2
      multiply_scores(dp, kAtV, kAtGradO + stage * kTileOfRows, [&](int n) {  // dP^T = V dO^T
        make_p(n, stage, unit);                                               // P = e^(scale S - lse)
        if ((n + 1) % kStepsOfBlock == 0) put(p, n / kStepsOfBlock, masked, kAtP);
        if (more && n == 3) loader.load_q(rows_of(step + 1), stage ^ 1);
        if (more && n == 9) loader.load_grad_o(rows_of(step + 1), stage ^ 1);
        if (more && n == 11) loader.load_statistics(rows_of(step + 1), stage ^ 1);
      });
      cp_async_fence();
      shared.p_there[strip()].arrive();
      multiply_keys(dv, p, kAtP, kAtGradO + stage * kTileOfRows, shared.p_there[strip()], parity,
                    [&](int n) {          // dV += P^T dO
                      make_ds(n, stage);  // dS = P (dP - D)
                      if ((n + 1) % kStepsOfBlock == 0) put(ds, n / kStepsOfBlock, masked, kAtDs);
                    });
      if (threadIdx.x == 0) shared.rows[(step + 2) % 4] = loader.rows_after(rows_of(step + 1));
      cp_async_wait<0>();
      shared.ds_there.arrive();
      multiply_keys(dk, ds, kAtDs, kAtQ + hidden(stage) * kTileOfRows, shared.ds_there, parity,
                    [](int) {});         // dK += dS^T Q
      if (puts) let_next_add(step - 1);  // all warps have added, since they have been at ds_there
      if (wants_q()) {
        unsigned seen = 0;
        if (!any_order()) seen = turns_passed(turns_of(step));
        multiply_dq();  // dQ = dS K
        if (!any_order()) shared.turns_seen[warp()] = seen;
      }
      shared.done.arrive();
    }
    if (!wants_q()) return;
    wait_turn(steps - 1);
    put_dq(steps - 1, 0);
    put_dq(steps - 1, 1);
    __syncthreads();
    let_next_add(steps - 1);
  }

  FALCHION_DEVICE const RowTile& rows_of(int step) const { return shared.rows[hidden(step) % 4]; }
  /// Whether no pair of this warp's keys and half of the rows needs a mask.
  FALCHION_DEVICE bool sees_all(int step) const {
    const RowsThatSeeAll whole = shared.whole[strip()];
    const int q0 = rows_of(step).tile * kRows + half() * kHalf;
    return q0 >= whole.begin && q0 + kHalf <= whole.end;
  }
  FALCHION_DEVICE RowLoader<Config> loader() const { return {a, t, shared}; }
  FALCHION_DEVICE bool wants_q() const {
    const auto address = reinterpret_cast<std::uintptr_t>(a.grad_q.data);
    return (hidden(static_cast<std::uint32_t>(address)) | hidden(static_cast<std::uint32_t>(address >> 32))) != 0;
  }
  FALCHION_DEVICE bool any_order() const { return hidden(static_cast<std::uint32_t>(a.any_order)) != 0; }
  template <class Sums_>
  static FALCHION_DEVICE void clear(Sums_& x) {
    for (auto& of_rows : x) {
      for (auto& sums : of_rows) {
        CUTE_UNROLL
        for (float& sum : sums) sum = 0;
      }
    }
  }

  // A warp has a strip of 32 keys, half of a tile's rows and half of the columns.
  static FALCHION_DEVICE int lane() { return static_cast<int>(hidden(threadIdx.x) % 32); }
  FALCHION_DEVICE int lane_of_quad() const { return static_cast<int>(hidden(down_) / 128 % 4); }
  FALCHION_DEVICE int warp() const { return warp_; }
  FALCHION_DEVICE int strip() const { return warp_ % Config::kStrips; }
  FALCHION_DEVICE int half() const { return warp_ / Config::kStrips; }

  /// The addresses of this lane's blocks of a tile. The lane's part is hidden from the compiler: it would keep the
  /// addresses of all blocks in registers. The rest is constant and becomes immediate offsets of the instructions.
  FALCHION_DEVICE LaneBlocks down_first(std::uint32_t tile) const {
    return {hidden(down_), cast_smem_ptr_to_uint(&shared) + tile};
  }
  FALCHION_DEVICE LaneBlocks across_first(std::uint32_t tile) const {
    return {LaneBlocks::across_of(hidden(down_)), cast_smem_ptr_to_uint(&shared) + tile};
  }
  // Where tiles begin in the shared memory, in bytes.
  static constexpr std::uint32_t kTileOfKeys = kKeys * kD * 2, kTileOfRows = kRows * kD * 2;
  static constexpr std::uint32_t kAtK = 0, kAtV = kTileOfKeys, kAtQ = 2 * kTileOfKeys;
  static constexpr std::uint32_t kAtGradO = kAtQ + Config::kStages * kTileOfRows;
  static constexpr std::uint32_t kAtP = kAtGradO + Config::kStages * kTileOfRows, kAtDs = kAtP + kKeys * kRows * 2;
  static_assert(offsetof(Shared, v) == kAtV && offsetof(Shared, q) == kAtQ && offsetof(Shared, grad_o) == kAtGradO &&
                offsetof(Shared, p) == kAtP && offsetof(Shared, ds) == kAtDs);

  /// to = keys rows^T, of this warp's strip of keys and half of the rows.
  template <class Beside>
  FALCHION_DEVICE void multiply_scores(Scores& to, std::uint32_t keys, std::uint32_t rows, Beside beside) {
    const LaneBlocks of_keys = down_first(keys).template from<kKeys>(strip() * 32, 0);
    const LaneBlocks of_rows = across_first(rows).template from<kRows>(half() * kHalf, 0);
    clear(to);
    multiply<Element, kD / 16, kBlocks, kEarly ? kBlocks : 1, 1>(
        to, [&](int k, int m, Block& x) { load_block(of_keys.at<kKeys>(16 * m, 16 * k), x); },
        [&](int k, int i, Block& x) { load_block(of_rows.at<kRows>(16 * i, 16 * k), x); }, beside);
  }
  /// to += factor^T rows, of this warp's strip of keys and half of the columns. The factor of this warp's half of the
  /// rows is in registers, and that of the other half is in shared memory after the barrier `there`.
  template <class Beside>
  FALCHION_DEVICE void multiply_keys(Keys& to, const Rounded& own, std::uint32_t factor, std::uint32_t rows,
                                     const SplitBarrier& there, int parity, Beside beside) {
    const LaneBlocks of_factor = down_first(factor).template from<kKeys>(strip() * 32, (half() ^ 1) * kHalf);
    const LaneBlocks of_columns = down_first(rows).template from<kRows>(0, half() * kColumns);
    const int own_lines = half() * kHalf, other_lines = (half() ^ 1) * kHalf;
    multiply<Element, kRows / 16, kColumns / 16, kAhead, kAhead>(
        to,
        [&](int k, int m, Block& x) {
          if (k < kBlocks) {
            CUTE_UNROLL
            for (int i = 0; i < 4; ++i) x[i] = own[k][m][i];
          } else {
            if (k == kBlocks && m == 0) there.wait(parity);
            load_block(of_factor.at<kKeys>(16 * m, 16 * (k - kBlocks)), x);
          }
        },
        [&](int k, int i, Block& x) {
          const int line = k < kBlocks ? own_lines + 16 * k : other_lines + 16 * (k - kBlocks);
          load_block_transposed(of_columns.at<kRows>(line, 16 * i), x);
        },
        beside);
  }
  /// dQ = dS K, of 32 rows and 32 columns.
  FALCHION_DEVICE void multiply_dq() {
    const int rows = warp() % Config::kStripsDq * 32, columns = warp() / Config::kStripsDq * 32;
    const LaneBlocks of_ds = across_first(kAtDs).template from<kKeys>(0, rows);
    const LaneBlocks of_k = down_first(kAtK).template from<kKeys>(0, columns);
    clear(dq);
    multiply<Element, kKeys / 16, 2, kAhead, kAhead>(
        dq, [&](int k, int m, Block& x) { load_block_transposed(of_ds.at<kKeys>(16 * k, 16 * m), x); },
        [&](int k, int i, Block& x) { load_block_transposed(of_k.at<kKeys>(16 * k, 16 * i), x); }, [](int) {});
  }

  /// Share n of kSteps of P = exp2(S unit - lse), rounded.
  FALCHION_DEVICE void make_p(int n, int stage, float unit) {
    share(n, shared.lse[stage], [&](int k, int m, int word, float2 lse) {
      const float* from = s[m][2 * k + word / 2] + word % 2 * 2;
      p[k][m][word] = round_pair<Element>(exp2(fmaf(from[0], unit, -lse.x)), exp2(fmaf(from[1], unit, -lse.y)));
    });
  }
  /// Share n of kSteps of dS = P (dP - D), rounded. P is the rounded one, since there are no registers for both.
  FALCHION_DEVICE void make_ds(int n, int stage) {
    share(n, shared.delta[stage], [&](int k, int m, int word, float2 delta) {
      const float* from = dp[m][2 * k + word / 2] + word % 2 * 2;
      const std::uint32_t of_p = p[k][m][word];
      ds[k][m][word] = round_pair<Element>(number_of<Element>(of_p, 0) * (from[0] - delta.x),
                                           number_of<Element>(of_p, 1) * (from[1] - delta.y));
    });
  }
  /// Calls f(block, strip of 16 keys, word of the block, numbers of its two rows) for share n of all words. The numbers
  /// are read before the first word of their rows.
  template <class F>
  FALCHION_DEVICE void share(int n, const float* of_rows, F f) {
    constexpr int kEach = kWords / kSteps;
    CUTE_UNROLL
    for (int i = n * kEach; i < (n + 1) * kEach; ++i) {
      if (i % 4 == 0) numbers = reinterpret_cast<const float2*>(of_rows + half() * kHalf)[i + lane_of_quad()];
      f(i / 8, i / 2 % 2, i / 4 % 2 * 2 + i % 2, numbers);
    }
  }
  /// Writes 16 rows of P^T or dS^T of this warp's keys to the shared tile. Masked pairs become 0.
  FALCHION_DEVICE void put(Rounded& x, int k, bool masked, std::uint32_t tile) const {
    if (masked) keep_seen(x, k);
    const LaneBlocks blocks = down_first(tile).template from<kKeys>(strip() * 32, half() * kHalf);
    const LaneBlocks words =
        LaneBlocks{words_of_lane(lane()), cast_smem_ptr_to_uint(&shared) + tile}.template from<kKeys>(strip() * 32,
                                                                                                      half() * kHalf);
    CUTE_UNROLL
    for (int m = 0; m < 2; ++m) store_block(blocks.at<kKeys>(16 * m, 16 * k), words.at<kKeys>(16 * m, 16 * k), x[k][m]);
  }

  /// Works out which of this lane's pairs count. The rows that see a key are an interval in this warp's rows: `begin`
  /// and `end` are those of this lane's first key, counted from its first row, and those of its other keys are shifted
  /// by 8, 16 and 24.
  FALCHION_DEVICE void find_seen(int q0, const float* delta, bool dead) {
    const int row0 = q0 + lane() % 4 * 2, key0 = t.own0 + strip() * 32 + lane() / 4;
    const auto from_row0 = [&](std::int64_t row) {
      return static_cast<int>(min(max(row - row0, std::int64_t{-4096}), std::int64_t{4096}));
    };
    const int begin = from_row0(key0 - t.mask.shift - t.mask.right), rows = from_row0(t.q.length);
    const int end = from_row0(key0 - t.mask.shift + t.mask.left + 1);
    std::uint32_t alive = ~0u;
    if (dead) alive = alive_rows(delta);
    const auto lines_before = [](int row) { return (1u << (min(max(row + 7, 0), kHalf) >> 3)) - 1; };  // 8 rows each
    CUTE_UNROLL
    for (auto& bits : seen) bits = 0;
    CUTE_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int first = begin + 8 * r, past = key0 + 8 * r < t.k.length ? min(end + 8 * r, rows) : 0;
      const std::uint32_t even = lines_before(past) & ~lines_before(first);
      const std::uint32_t odd = lines_before(past - 1) & ~lines_before(first - 1);
      seen[r / kKeysOfBits] |= ((even | odd << 16) & alive) << bit_of(r, 0);
    }
  }
  /// A bit for each row that counts: the even rows in the lower half of a word, the odd ones in the upper half.
  FALCHION_DEVICE std::uint32_t alive_rows(const float* delta) const {
    std::uint32_t alive = 0;
    CUTE_UNROLL
    for (int i = 0; i < kHalf / 8; ++i) {
      const float2 of_rows = reinterpret_cast<const float2*>(delta)[4 * i + lane() % 4];
      if (!counts_for_nothing({0, of_rows.x})) alive |= 1u << i;
      if (!counts_for_nothing({0, of_rows.y})) alive |= 1u << 16 << i;
    }
    return alive;
  }
  /// The bit of this lane's key r and the even row of the i-th 8 rows; the odd row's bit is 16 higher.
  static constexpr int bit_of(int r, int i) { return r % kKeysOfBits * (kHalf / 8) + i; }
  FALCHION_DEVICE void keep_seen(Rounded& x, int k) const {
    CUTE_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int m = i / 4, r = m * 2 + i % 2, rows = k * 2 + i / 2 % 2;
      std::uint32_t all;  // each half of the word filled with its bit
      asm("prmt.b32 %0, %1, 0, 0xBB99;" : "=r"(all) : "r"(seen[r / kKeysOfBits] << (15 - bit_of(r, rows))));
      x[k][m][i % 4] &= all;
    }
  }

  // Where sums have a fixed order, a counter holds how many CTAs have added to a tile of dQ. The first CTA stores, so
  // that the sums need not be cleared. With any_order they have been cleared, and each CTA adds at any time.
  FALCHION_DEVICE unsigned* turns_of(int step) const {
    return shared.head.turns + std::int64_t{rows_of(step).block} * 2;
  }
  FALCHION_DEVICE void wait_turn(int step) const {
    if (any_order()) return;
    const auto wanted = static_cast<unsigned>(rows_of(step).wanted);
    if (shared.turns_seen[warp()] < wanted) wait_for_turn(turns_of(step), wanted);
    __syncwarp();
  }
  FALCHION_DEVICE void let_next_add(int step) const {
    if (!any_order() && threadIdx.x == 0) give_turn(turns_of(step));
  }
  /// Adds 16 rows of dQ to the sums, or stores them.
  FALCHION_DEVICE void put_dq(int step, int m) const {
    const RowTile rows = rows_of(step);
    const TileSums<Config::kThreads> sums{shared.head.sums + std::int64_t{rows.block} * (64 * kD)};
    if (rows.wanted > 0) {
      CUTE_UNROLL
      for (int n = 0; n < 4; ++n) sums.add(4 * m + n, dq[m][n]);
    } else {
      CUTE_UNROLL
      for (int n = 0; n < 4; ++n) sums.store(4 * m + n, dq[m][n]);
    }
  }

  /// Stores dK or dV.
  FALCHION_DEVICE void store(const Keys& gradient, const View& x, int d, float scale) const {
    const std::int64_t head = t.k.batch * x.stride[0] + t.k.begin * x.stride[1] + t.h_kv * x.stride[2];
    CUTE_UNROLL
    for (int m = 0; m < 2; ++m) {
      const GradientRows to{x, head,  t.own0 + strip() * 32 + 16 * m, t.k.length, half() * kColumns,
                            d, scale, !a.grads_f32 && a.grads_aligned};
      store_rows<Element, kColumns, 1>(
          a, to, [&](int e) { return gradient[m][e / 4][e % 4]; }, [](int) { return true; });
    }
  }

  Scores s, dp;   // (32 keys, kHalf rows) f32
  Keys dk, dv;    // (32 keys, kColumns) f32
  Sums dq[2][4];  // (32 rows, 32 columns) f32
  Rounded p, ds;
  std::uint32_t seen[kWords / 16];  // two bits for each word of P; only where a tile is masked
  float2 numbers;                   // lse or D of two rows

  const int warp_;
  const std::uint32_t down_;  // this lane in a block
  const AttentionBackwardArgs& a;
  const BackwardTile& t;
  Shared& shared;
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    attention_backward(const __grid_constant__ AttentionBackwardArgs a, const __grid_constant__ BackwardDivisors by,
                       int together) {
  extern __shared__ __align__(128) unsigned char memory[];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  const int tiles = by.tiles.divisor, heads = static_cast<int>(gridDim.x) / tiles;
  const int block = tile_of_block(static_cast<int>(blockIdx.x), tiles, heads, together);
  const auto t = BackwardTile::of<Owner::keys, Config::kKeys, Config::kRows>(a, by, block, !a.any_order);
  if (t.own0 >= t.k.length) return;
  if (threadIdx.x == 0) shared.tile = t;
  __syncthreads();
  BackwardWarp<Config>(a, shared).run();
}

}  // namespace falchion::sm80
