// src/sm90/linear_attention_wide.cuh: the chunks of linear_attention_halves.cuh where a CTA has all 128 columns of a
// head: P, the state and the outputs.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "sm90/linear_attention_halves.cuh"
#include "sm90/linear_attention_wide_split.cuh"

namespace falchion::sm90 {

/// The warpgroup that makes P, and says which powers of two S and O have.
class LinearWideScores {
  using Config = LinearWideConfig;
  using Shared = Config::Shared;

 public:
  __device__ __forceinline__ LinearWideScores(const LinearCta& cta, Shared& shared)
      : count(cta.chunks.count), scale(cta.sweep.scale), shared(shared), flip(cta.chunks.step > 0 ? 0 : ~0u) {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
    bits = 16 * (row - lane % 4 * 2 + (cta.chunks.step > 0 ? 1 : 0));
  }

  __device__ __forceinline__ void run() {
    RingPosition<Config::kStagesOfK> at;
    StateBound bound{0};
    CUTE_NO_UNROLL
    for (; count > 0; --count, at.advance()) {
      shared.q_full.wait(at.stage);
      shared.k_full[at.stage].wait(at.parity);
      start_p(at.stage);
      shared.known.wait(at.stage);
      const int e_k = read_by_warp(shared.exponent_k[at.stage]), e_v = read_by_warp(shared.exponent_v[at.stage]);
      const int e_before = bound.exponent(), e_s = bound.exponent_with(e_k, e_v);
      const int e_p = e_s - e_k - e_v;  // then V^T P^T has the exponent of S^T Q^T
      const int e_q = shared.exponent_q[threadIdx.x % 8];
      wait_multiply<0>(rP);
      __syncwarp();
      arrive_by_warp(shared.q_empty);
      arrive_by_warp(shared.k_empty[at.stage]);
      shared.p_empty.wait(at.stage ^ 1);
      if (threadIdx.x % 128 < 8) {
        shared.exponent_change[at.stage] = e_s - e_before, shared.exponent_added[at.stage] = e_p;
        shared.factor_o[at.stage][threadIdx.x % 8] = TwoFactors(-e_q - e_s, scale);
      }
      stage_halves(rP, power_of_two(max(e_p, -126)), shared.out[1].p[0], shared.out[1].p[1], [this](int i) {
        return low_bits(bits + 128 * (i % 2 - i / 2)) ^ flip;  // this row's limit falls by 8 tokens a pair
      });
      publish_to_async();
      __syncwarp();
      arrive_by_warp(shared.p_full);
    }
  }

 private:
  __device__ __forceinline__ void start_p(int stage) {  // P = Q K^T (C, C)
    const auto slice = Config::MmaQk{}.get_slice(0);
    const auto q = [&](int term) {
      return slice.partition_fragment_A(in_shared(shared.q[term], Config::LayoutQ{}))(_, _, _, 0);
    };
    const auto k = [&](int term) {
      return slice.partition_fragment_B(in_shared(shared.k[stage][term], Config::LayoutQ{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(Config::MmaQk{}, q, k, rP);
  }
  static __device__ __forceinline__ std::uint32_t low_bits(int count) {  // below 0 none, above 32 all
    std::uint32_t mask;
    asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(mask) : "r"(max(count, 0)));
    return mask;
  }

  int count;  // chunks that are left
  const float scale;
  Shared& shared;
  int bits;                  // of this thread's first two columns in its first row: 16 for each token that it sees
  const std::uint32_t flip;  // backward in time it sees the others
  decltype(partition_fragment_C(Config::MmaQk{}, Shape<_64, _64>{})) rP;
};

/// The warpgroups that carry S^T, 64 rows (M) of it each, from 0 to where nobody asks for it, and make those of O^T. S
/// has the power of two in it that brings it below 2^15.
class LinearWideState {
  using Config = LinearWideConfig;
  using Shared = Config::Shared;

 public:
  __device__ __forceinline__ LinearWideState(const LinearCta& cta, Shared& shared)
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

  __device__ __forceinline__ void run() {
    RingPosition<Config::kStagesOfK> at;
    CUTE_NO_UNROLL
    for (; count > 0; --count, at.advance(), row += step) {
      start_sq(at.stage);
      shared.p_full.wait(at.stage);
      shared.v_full.wait(at.stage);
      const int change = read_by_warp(shared.exponent_change[at.stage]);
      const float factor = power_of_two(max(read_by_warp(shared.exponent_added[at.stage]), -126));
      warpgroup_wait<0>();  // S^T Q^T
      for (auto& terms : S) keep_terms(terms);
      arrive_by_warp(shared.q_empty);
      if (change != 0) scale_all(change);
      start_vp();
      wait_multiply<0>(rO);
      arrive_by_warp(shared.p_read);
      if (group == 1) shared.p_read.wait(at.stage);
      store_o(shared.factor_o[at.stage]);
      shared.k_full[at.stage].wait(at.parity);
      start_state(at.stage);
      cute::tma_store_wait<0>();
      give_back_p();
      wait_multiply<0>(added);
      arrive_by_warp(shared.k_empty[at.stage]);
      arrive_by_warp(shared.v_empty);
      CUTE_UNROLL
      for (int j = 0; j < size(added); ++j) rS(j) = fmaf(added(j), factor, rS(j));
    }
  }

 private:
  /// By the thread whose o has left P's place, the first of group 1. No branch: products are running.
  __device__ __forceinline__ void give_back_p() {
    asm volatile(
        "{\n"
        ".reg .pred first;\n"
        "setp.eq.u32 first, %1, 128;\n"
        "@first mbarrier.arrive.shared::cta.b64 _, [%0];\n"
        "}\n" ::"r"(cast_smem_ptr_to_uint(&shared.p_empty)),
        "r"(threadIdx.x)
        : "memory");
  }
  /// S has 2^exponent less from now on, and so has S^T Q^T.
  __device__ __forceinline__ void scale_all(int exponent) {
    const TwoFactors scale(exponent);
    warpgroup_fence_operand(rO);
    CUTE_UNROLL
    for (int j = 0; j < size(rO); ++j) rO(j) = scale.of(rO(j));
    CUTE_UNROLL
    for (int j = 0; j < size(rS); ++j) rS(j) = scale.of(rS(j));
  }
  /// O^T = S^T Q^T (M, C). S is taken apart 16 columns (E) at a time, while products of those before run.
  __device__ __forceinline__ void start_sq(unsigned parity) {
    const auto slice = Config::MmaSq{}.get_slice(0);
    CUTE_UNROLL
    for (int k = 0; k < Config::kD / 16; ++k) {
      auto& s = S[k % 2];
      if (k >= 2) warpgroup_wait<kBatchesOfHalves>(), keep_terms(s);
      auto high = recast<std::uint32_t>(s[0]), low = recast<std::uint32_t>(s[1]);
      CUTE_UNROLL
      for (int i = 0; i < size(high); ++i) {
        float x = rS(8 * k + 2 * i), y = rS(8 * k + 2 * i + 1);
        high(i) = round_half(x, y), low(i) = round_half(x, y);
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
  __device__ __forceinline__ void start_vp() {  // O^T += V^T P^T
    const auto slice = Config::MmaVp{}.get_slice(0);
    const auto v = [&](int term) {
      return slice.partition_fragment_A(in_shared(shared.v[term] + group * 64 * 64, Config::LayoutVt{}))(_, _, _, 0);
    };
    const auto p = [&](int term) {
      return slice.partition_fragment_B(in_shared(shared.out[1].p[term], Config::LayoutP{}))(_, _, _, 0);
    };
    start_multiply_halves<false>(Config::MmaVp{}, v, p, rO);
  }
  __device__ __forceinline__ void start_state(int stage) {  // what this chunk adds: V^T K (M, E)
    const auto slice = Config::MmaState{}.get_slice(0);
    const auto v = [&](int term) {
      return slice.partition_fragment_A(in_shared(shared.v[term] + group * 64 * 64, Config::LayoutVt{}))(_, _, _, 0);
    };
    const auto k = [&](int term) {
      return slice.partition_fragment_B(in_shared(shared.k[stage][term], Config::LayoutKt{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(Config::MmaState{}, v, k, added);
  }
  /// O by way of shared memory, turned round.
  __device__ __forceinline__ void store_o(const TwoFactors* factors) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
    const int m = lane / 4, token = lane % 4 * 2;  // of 8 each
    int at = warp / 2 * (Config::kBox / 2) + token * 32 + ((warp % 2 * 4 + m / 4) ^ token) * 4 + m % 4;
    asm volatile("" : "+r"(at));  // else all addresses wait in registers
    float* const to = shared.out[group].o;
    sync_threads<128>(kOfOutputs + group);
    const TwoFactors scale[] = {factors[lane % 4], factors[4 + lane % 4]};
    CUTE_UNROLL
    for (int j = 0; j < 8; ++j) {
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i)  // (2 tokens, m and m + 8)
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
  int count, row;  // chunks that are left, and where the next one begins
  decltype(make_tensor<Config::Half>(Layout<_8>{})) S[2][Config::kTerms];     // 16 columns of it, operand A as it lies
  decltype(partition_fragment_C(Config::MmaState{}, Shape<_64, _128>{})) rS;  // (M, E)
  decltype(partition_fragment_C(Config::MmaState{}, Shape<_64, _128>{})) added;  // (M, E)
  decltype(partition_fragment_C(Config::MmaSq{}, Shape<_64, _64>{})) rO;         // (M, C)
};

/// Which warps do what.
struct LinearWideRoles {
  using Config = LinearWideConfig;
  static __device__ __forceinline__ void run(const LinearCta& cta, Config::Shared& shared) {
    let_next_kernel_start();
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
