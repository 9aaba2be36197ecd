// src/sm90/linear_attention/wide/kernel.cuh: linear attention on Hopper in f32 at d 128, in wide CTAs, which have all
// 128 columns of a head: the scores P, the state and the outputs. f32 numbers are split as in
// linear_attention/halves/kernel.cuh; a CTA splits q and k once for the head, where narrow CTAs do so for each 64
// columns. docs/design/linear_attention.md, "Wide: all 128 columns of a head in one CTA", describes and measures it.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "base/host_device.hpp"
#include "sm90/linear_attention/halves/kernel.cuh"
#include "sm90/linear_attention/wide/split.cuh"

namespace falchion::sm90 {

/// The warpgroup that makes P. It also works out the powers of two of S and O, since it waits for the exponents anyway.
///
/// For each chunk it waits for q and k (q_full, k_full) and starts P = Q K^T; waits for the exponents of k and v
/// (known); waits for P and releases q and k (q_empty, k_empty); waits until the place of P is free (p_empty), writes
/// the exponents and P there, and signals p_full.
class LinearWideScores {
  using Config = LinearWideConfig;
  using Shared = Config::Shared;

 public:
  FALCHION_DEVICE LinearWideScores(const LinearCta& cta, Shared& shared)
      : count(cta.chunks.count), scale(cta.sweep.scale), shared(shared), flip(cta.chunks.step > 0 ? 0 : ~0u) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
    bits = 16 * (row - lane % 4 * 2 + (cta.chunks.step > 0 ? 1 : 0));
  }

  FALCHION_DEVICE void run() {
    RingPosition<Config::kStagesOfK> at;
    StateBound bound{0};
    CUTE_NO_UNROLL
    for (; count > 0; --count, at.advance()) {
      shared.q_full.wait(at.stage);
      shared.k_full[at.stage].wait(at.parity);
      start_p(at.stage);  // P = Q K^T
      shared.known.wait(at.stage);
      const int e_k = read_by_warp(shared.exponent_k[at.stage]), e_v = read_by_warp(shared.exponent_v[at.stage]);
      const int e_before = bound.exponent(), e_s = bound.exponent_with(e_k, e_v);
      const int e_p = e_s - e_k - e_v;  // gives V^T P^T the same exponent as S^T Q^T, since both are summed in O
      const int e_q = shared.exponent_q[threadIdx.x % 8];
      wait_multiply<0>(rP);
      __syncwarp();
      arrive_by_warp(shared.q_empty);
      arrive_by_warp(shared.k_empty[at.stage]);
      shared.p_empty.wait(at.stage ^ 1);
      if (threadIdx.x % 128 < 8) {
        shared.exponent_change[at.stage] = e_s - e_before;
        shared.exponent_added[at.stage] = e_p;
        shared.factor_o[at.stage][threadIdx.x % 8] = TwoFactors(-e_q - e_s, scale);
      }
      stage_halves(rP, power_of_two(max(e_p, -126)), shared.out[1].p[0], shared.out[1].p[1], [this](int i) {
        // Pair i lies i / 2 * 8 tokens to the right of the first pair, and in the row 8 below if i is odd.
        return low_bits(bits + 128 * (i % 2 - i / 2)) ^ flip;
      });
      publish_to_async();
      __syncwarp();
      arrive_by_warp(shared.p_full);
    }
  }

 private:
  FALCHION_DEVICE void start_p(int stage) {  // P = Q K^T (C, C)
    const auto slice = Config::MmaQk{}.get_slice(0);
    const auto q = [&](int term) {
      return slice.partition_fragment_A(in_shared(shared.q[term], Config::LayoutQ{}))(_, _, _, 0);
    };
    const auto k = [&](int term) {
      return slice.partition_fragment_B(in_shared(shared.k[stage][term], Config::LayoutQ{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(Config::MmaQk{}, q, k, rP);
  }
  /// A word whose `count` lowest bits are 1: none if count is negative, all if it is above 32.
  static FALCHION_DEVICE std::uint32_t low_bits(int count) {
    std::uint32_t mask;
    asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(mask) : "r"(max(count, 0)));
    return mask;
  }

  int count;  // how many chunks are left
  const float scale;
  Shared& shared;
  // 16 times the number of tokens that this thread's first row sees from the thread's first column on; it may be
  // negative. Its low bits (clamped) are the mask of the first pair. Backward in time it counts the tokens that the row
  // does not see, and `flip`, which is all ones then, inverts the mask.
  int bits;
  const std::uint32_t flip;
  decltype(partition_fragment_C(Config::MmaQk{}, Shape<_64, _64>{})) rP;
};

/// The two warpgroups that carry S^T and make O^T, 64 rows (M) of each. S starts from 0, and no final state is stored.
/// S is always kept multiplied by the power of two that brings it below 2^15.
///
/// For each chunk a warpgroup splits S^T in its registers, waits for q (q_full) and starts O^T = S^T Q^T; waits for P
/// and v (p_full, v_full); waits for its product and releases q (q_empty); adds V^T P^T; signals that it has read P
/// (p_read). Warpgroup 0 then stores its o. Warpgroup 1 first waits until both have read P, because its o goes to the
/// place of P. Each then waits for k (k_full) and starts V^T K; waits until its o has left shared memory, after which
/// warpgroup 1 releases the place of P (p_empty); waits for V^T K, releases k and v (k_empty, v_empty) and adds it to
/// S^T.
class LinearWideState {
  using Config = LinearWideConfig;
  using Shared = Config::Shared;

 public:
  FALCHION_DEVICE LinearWideState(const LinearCta& cta, Shared& shared)
      : map(cta.maps.o),
        shared(shared),
        step(cta.chunks.step * 64),
        head(cta.block.h / cta.sweep.o.shared),
        batch(cta.block.b),
        group(__shfl_sync(~0u, threadIdx.x / 128, 0)),
        count(cta.chunks.count),
        row(cta.chunks.row(0)) {
    clear(rS);
  }

  FALCHION_DEVICE void run() {
    RingPosition<Config::kStagesOfK> at;
    CUTE_NO_UNROLL
    for (; count > 0; --count, at.advance(), row += step) {
      start_sq(at.stage);  // O^T = S^T Q^T
      shared.p_full.wait(at.stage);
      shared.v_full.wait(at.stage);
      const int change = read_by_warp(shared.exponent_change[at.stage]);
      const float factor = power_of_two(max(read_by_warp(shared.exponent_added[at.stage]), -126));
      warpgroup_wait<0>();  // S^T Q^T is done
      for (auto& terms : S) keep_terms(terms);
      arrive_by_warp(shared.q_empty);
      if (change != 0) scale_all(change);
      start_vp();  // O^T += V^T P^T
      wait_multiply<0>(rO);
      arrive_by_warp(shared.p_read);
      if (group == 1) shared.p_read.wait(at.stage);
      store_o(shared.factor_o[at.stage]);
      shared.k_full[at.stage].wait(at.parity);
      start_state(at.stage);  // V^T K
      cute::tma_store_wait<0>();
      give_back_p();
      wait_multiply<0>(added);
      arrive_by_warp(shared.k_empty[at.stage]);
      arrive_by_warp(shared.v_empty);
      CUTE_UNROLL
      for (int j = 0; j < size(added); ++j) rS(j) = fmaf(added(j), factor, rS(j));  // S^T += V^T K
    }
  }

 private:
  /// The first thread of warpgroup 1 releases the place of P, since it is the thread that has waited for its o to leave
  /// that place. The arrival is predicated, because products are running (see arrive_by_warp).
  FALCHION_DEVICE void give_back_p() {
    asm volatile(
        "{\n"
        ".reg .pred first;\n"
        "setp.eq.u32 first, %1, 128;\n"
        "@first mbarrier.arrive.shared::cta.b64 _, [%0];\n"
        "}\n" ::"r"(cast_smem_ptr_to_uint(&shared.p_empty)),
        "r"(threadIdx.x)
        : "memory");
  }
  /// Multiplies S and S^T Q^T by 2^exponent. It is called where the bound of S has grown, a few times in a sequence.
  FALCHION_DEVICE void scale_all(int exponent) {
    const TwoFactors scale(exponent);
    warpgroup_fence_operand(rO);
    CUTE_UNROLL
    for (int j = 0; j < size(rO); ++j) rO(j) = scale.of(rO(j));
    CUTE_UNROLL
    for (int j = 0; j < size(rS); ++j) rS(j) = scale.of(rS(j));
  }
  /// Starts O^T = S^T Q^T (M, C). S is split 16 columns (E) at a time, while the products of the columns before them
  /// run. Two sets of registers for the parts alternate, so a set is waited for before it is written again.
  FALCHION_DEVICE void start_sq(unsigned parity) {
    const auto slice = Config::MmaSq{}.get_slice(0);
    CUTE_UNROLL
    for (int k = 0; k < Config::kD / 16; ++k) {
      auto& s = S[k % 2];
      if (k >= 2) {
        warpgroup_wait<kBatchesOfHalves>();
        keep_terms(s);
      }
      auto high = recast<std::uint32_t>(s[0]), low = recast<std::uint32_t>(s[1]);
      CUTE_UNROLL
      for (int i = 0; i < size(high); ++i) {
        float x = rS(8 * k + 2 * i), y = rS(8 * k + 2 * i + 1);
        high(i) = round_half(x, y);
        low(i) = round_half(x, y);
      }
      if (k == 0) shared.q_full.wait(parity);
      const auto a = [&](int term) { return as_wgmma_operand_a(s[term]); };
      const auto b = [&](int term) {
        const auto q = slice.partition_fragment_B(in_shared(shared.q[term], Config::LayoutQ{}));
        return domain_offset(make_coord(0, 0, k), q(_, _, _, 0));
      };
      if (k == 0)
        start_multiply_halves<true>(Config::MmaSq{}, a, b, rO);
      else
        start_multiply_halves<false>(Config::MmaSq{}, a, b, rO);
    }
  }
  FALCHION_DEVICE void start_vp() {  // O^T += V^T P^T
    const auto slice = Config::MmaVp{}.get_slice(0);
    const auto v = [&](int term) {
      return slice.partition_fragment_A(in_shared(shared.v[term] + group * 64 * 64, Config::LayoutVt{}))(_, _, _, 0);
    };
    const auto p = [&](int term) {
      return slice.partition_fragment_B(in_shared(shared.out[1].p[term], Config::LayoutP{}))(_, _, _, 0);
    };
    start_multiply_halves<false>(Config::MmaVp{}, v, p, rO);
  }
  FALCHION_DEVICE void start_state(int stage) {  // V^T K (M, E), which this chunk adds to S^T
    const auto slice = Config::MmaState{}.get_slice(0);
    const auto v = [&](int term) {
      return slice.partition_fragment_A(in_shared(shared.v[term] + group * 64 * 64, Config::LayoutVt{}))(_, _, _, 0);
    };
    const auto k = [&](int term) {
      return slice.partition_fragment_B(in_shared(shared.k[stage][term], Config::LayoutKt{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(Config::MmaState{}, v, k, added);
  }
  /// Multiplies O^T by its factors, transposes it through shared memory and stores it by TMA.
  FALCHION_DEVICE void store_o(const TwoFactors* factors) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
    const int m = lane / 4, token = lane % 4 * 2;  // this thread's m and first token within 8 x 8 of O^T
    int at = warp / 2 * (Config::kBox / 2) + token * 32 + ((warp % 2 * 4 + m / 4) ^ token) * 4 + m % 4;
    asm volatile("" : "+r"(at));  // otherwise the compiler keeps all addresses in registers
    float* const to = shared.out[group].o;
    sync_threads<128>(kOfOutputs + group);
    const TwoFactors scale[] = {factors[lane % 4], factors[4 + lane % 4]};
    CUTE_UNROLL
    for (int j = 0; j < 8; ++j) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i)  // i % 2: which of two tokens; i / 2: m or m + 8
        to[(at ^ (i % 2 * 4 + i / 2 * 8)) + 8 * 32 * j + i % 2 * 32] = scale[j % 2].of(rO(4 * j + i));
    }
    publish_to_async();
    sync_threads<128>(kOfOutputs + group);
    if (threadIdx.x % 128 > 0) return;
    cute::SM90_TMA_STORE_5D::copy(&map, to, 0, row, group * 2, head, batch);
    cute::tma_store_arrive();
  }

  const CUtensorMap& map;
  Shared& shared;
  const int step, head, batch, group;
  int count, row;  // how many chunks are left, and the first token of this one
  decltype(make_tensor<Config::Half>(Layout<_8>{})) S[2][Config::kTerms];        // 16 columns (E) of S^T, as operand A
  decltype(partition_fragment_C(Config::MmaState{}, Shape<_64, _128>{})) rS;     // (M, E)
  decltype(partition_fragment_C(Config::MmaState{}, Shape<_64, _128>{})) added;  // (M, E)
  decltype(partition_fragment_C(Config::MmaSq{}, Shape<_64, _64>{})) rO;         // (M, C)
};

/// The work of each warp of a CTA. For each chunk the warps wait for each other in this order:
///   warpgroups 3 and 4 (LinearWideSplitter)  wait for boxes and for free places; split q, k and v
///   warpgroup 2 (LinearWideScores)           waits for q and k, for their exponents and for the place of P; makes P
///   warpgroups 0 and 1 (LinearWideState)     wait for q, P, v and k; make O^T, store it, and add V^T K to S^T
/// The first splitter thread issues the loads of the boxes, and one thread of each warpgroup of the state stores o.
struct LinearWideRoles {
  using Config = LinearWideConfig;
  static FALCHION_DEVICE void run(const LinearCta& cta, Config::Shared& shared) {
    let_next_kernel_start();  // the narrow CTAs of the same call, which write other tensors
    const int group = static_cast<int>(threadIdx.x) / 128;
    if (group < Config::kStates) {
      cutlass::arch::warpgroup_reg_alloc<Config::kRegistersOfState>();
      LinearWideState(cta, shared).run();
    } else if (group == Config::kStates) {
      cutlass::arch::warpgroup_reg_dealloc<Config::kRegistersOfScores>();
      LinearWideScores(cta, shared).run();
    } else {
      cutlass::arch::warpgroup_reg_dealloc<Config::kRegistersOfSplitters>();
      LinearWideSplitter(cta, shared, static_cast<int>(threadIdx.x) - 128 * (Config::kStates + 1))
          .run(cta.chunks.count);
    }
  }
};

}  // namespace falchion::sm90
