// src/sm90/linear_attention_wide.cuh: the chunks of linear_attention_halves.cuh where a CTA has all 128 columns of a
// head: the state and the outputs.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "sm90/linear_attention_halves.cuh"
#include "sm90/linear_attention_wide_split.cuh"

namespace falchion::sm90 {

/// The warpgroups that carry S, 64 rows (E) of it each, from 0 to where nobody asks for it.
class LinearWideState {
  using Config = LinearWideConfig;
  using Shared = Config::Shared;

 public:
  __device__ __forceinline__ explicit LinearWideState(Shared& shared)
      : shared(shared), group(__shfl_sync(~0u, threadIdx.x / 128, 0)) {
    clear(rS);
  }
  __device__ __forceinline__ void run(int count) {
    RingPosition<1> at;
    StateBound bound{0};
    CUTE_NO_UNROLL
    for (int i = 0; i < count; ++i, at.advance()) {
      for (auto& barrier : shared.known) barrier.wait(at.parity);
      const int e_k = read_by_warp(shared.exponent[Config::kK][at.parity]),
                e_v = read_by_warp(shared.exponent[Config::kV][at.parity]);
      const int e_s = bound.exponent_with(e_k, e_v);
      shared.s_empty.wait(at.parity ^ 1);
      if (threadIdx.x == 0) shared.s_exponent = e_s;
      const float scale = TwoFactors(e_s).of(1);
      CUTE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int to = (half * Config::kD + group * 64) * 64;
        stage_halves(rS(_, half, 0), scale, shared.s[0] + to, shared.s[1] + to);
      }
      publish_to_async();
      __syncwarp();
      arrive_by_warp(shared.s_full);
      shared.full[Config::kK].wait(at.parity);
      shared.full[Config::kV].wait(at.parity);
      const TwoFactors back(-e_k - e_v);
      CUTE_UNROLL
      for (int half = 0; half < 2; ++half) {
        start_product(half);
        wait_multiply<0>(added);
        auto rows = rS(_, half, 0);
        CUTE_UNROLL
        for (int j = 0; j < size(added); ++j) rows(j) += back.of(added(j));
      }
      __syncwarp();
      for (const int operand : {Config::kK, Config::kV}) arrive_by_warp(shared.empty[operand]);
    }
  }

 private:
  __device__ __forceinline__ void start_product(int half) {  // 64 x 64 of K^T V
    int k0 = group * 64 * 64, v0 = half * 64 * 64;
    asm volatile("" : "+r"(k0), "+r"(v0));  // else the addresses of all terms wait in registers
    const auto slice = Config::MmaState{}.get_slice(0);
    const auto k = [&](int term) {
      return slice.partition_fragment_A(in_shared(shared.k[term] + k0, Config::LayoutKt{}))(_, _, _, 0);
    };
    const auto v = [&](int term) {
      return slice.partition_fragment_B(in_shared(shared.v[term] + v0, Config::LayoutKt{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(Config::MmaState{}, k, v, added);
  }

  Shared& shared;
  const int group;
  decltype(partition_fragment_C(Config::MmaState{}, Shape<_128, _64>{})) rS;  // 64 x 64, columns / 64
  decltype(partition_fragment_C(Config::MmaState{}, Shape<_64, _64>{})) added;
};

/// The warpgroup that makes the outputs. q is read from shared memory: there are no registers for it.
class LinearWideOutputs {
  using Config = LinearWideConfig;
  using Shared = Config::Shared;

 public:
  __device__ __forceinline__ LinearWideOutputs(const LinearCta& cta, Shared& shared)
      : cta(cta), shared(shared), flip(cta.chunks.step > 0 ? 0 : ~0u) {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
    bits = 16 * (row - lane % 4 * 2 + (cta.chunks.step > 0 ? 1 : 0));
  }

  __device__ __forceinline__ void run() {
    RingPosition<1> at;
    const int head = cta.block.h / cta.sweep.o.shared;
    CUTE_NO_UNROLL
    for (int i = 0; i < cta.chunks.count; ++i, at.advance()) {
      shared.full[Config::kK].wait(at.parity);
      shared.full[Config::kQ].wait(at.parity);
      start_p();
      shared.s_full.wait(at.parity);
      start_qs();
      const int e_s = read_by_warp(shared.s_exponent);
      const int e_p = e_s - read_by_warp(shared.exponent[Config::kK][at.parity]) -
                      read_by_warp(shared.exponent[Config::kV][at.parity]);  // then P V has the exponent of Q S
      int e_q[2];
      const auto* const of_warp = reinterpret_cast<const int*>(shared.q_exponent) + threadIdx.x % 128 / 32 * 2;
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r)
        e_q[r] = static_cast<signed char>(read_by_warp(of_warp[r]) >> threadIdx.x % 32 / 8 * 8);
      wait_multiply<kBatchesOfHalves>(rP);
      arrive_by_warp(shared.empty[Config::kK]);
      split_causal(rP, power_of_two(max(e_p, -126)), P, [this](int i) {  // this row's limit falls by 8 tokens a pair
        return low_bits(bits + 128 * (i % 2 - i / 2)) ^ flip;
      });
      shared.full[Config::kV].wait(at.parity);
      start_pv();
      warpgroup_wait<kBatchesOfHalves>();  // Q S
      arrive_by_warp(shared.empty[Config::kQ]);
      arrive_by_warp(shared.s_empty);
      wait_multiply<0>(rO);
      for (auto& term : P) warpgroup_fence_operand(term);  // until here they were read
      arrive_by_warp(shared.empty[Config::kV]);
      const TwoFactors first(-e_q[0] - e_s, cta.sweep.scale), second(-e_q[1] - e_s, cta.sweep.scale);
      CUTE_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (threadIdx.x % 128 == 0) cute::tma_store_wait<0>();
        sync_threads<128>(kOfOutputs);
        stage_floats(make_tensor(rO.data() + 32 * half, Layout<_32>{}), shared.o, first, second);
        publish_to_async();
        sync_threads<128>(kOfOutputs);
        if (threadIdx.x % 128 > 0) continue;
        cute::SM90_TMA_STORE_5D::copy(&cta.maps.o, shared.o, 0, cta.chunks.row(i), half * 2, head, cta.block.b);
        cute::tma_store_arrive();
      }
    }
    if (threadIdx.x % 128 == 0) cute::tma_store_wait<0>();
  }

 private:
  template <class Mma, class Layout>
  static __device__ __forceinline__ auto operand_b(Mma mma, Config::Half* data, Layout layout) {
    return mma.get_slice(0).partition_fragment_B(in_shared(data, layout))(_, _, _, 0);
  }
  /// C = Q B, q from shared memory.
  template <class Mma, class B, class C>
  __device__ __forceinline__ void start_q_times(Mma mma, B b, C& c) {
    const auto q = [&](int term) {
      return mma.get_slice(0).partition_fragment_A(in_shared(shared.q[term], Config::LayoutK{}))(_, _, _, 0);
    };
    start_multiply_halves<true>(mma, q, b, c);
  }
  __device__ __forceinline__ void start_p() {  // P = Q K^T (C, C)
    const auto k = [&](int term) { return operand_b(Config::MmaQk{}, shared.k[term], Config::LayoutK{}); };
    start_q_times(Config::MmaQk{}, k, rP);
  }
  __device__ __forceinline__ void start_qs() {  // O = Q S (C, M)
    const auto s = [&](int term) { return operand_b(Config::MmaQs{}, shared.s[term], Config::LayoutSt{}); };
    start_q_times(Config::MmaQs{}, s, rO);
  }
  static __device__ __forceinline__ std::uint32_t low_bits(int count) {  // below 0 none, above 32 all
    std::uint32_t mask;
    asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(mask) : "r"(max(count, 0)));
    return mask;
  }
  __device__ __forceinline__ void start_pv() {  // O += P V (C, M)
    const auto v = [&](int term) { return operand_b(Config::MmaPv{}, shared.v[term], Config::LayoutVt{}); };
    start_multiply_halves<false>(
        Config::MmaPv{}, [&](int term) { return as_wgmma_operand_a(P[term]); }, v, rO);
  }

  const LinearCta& cta;
  Shared& shared;
  int bits;                  // of this thread's first two columns in its first row: 16 for each token that it sees
  const std::uint32_t flip;  // backward in time it sees the others
  decltype(make_tensor<Config::Half>(Layout<_32>{})) P[Config::kTerms];    // operand A as it lies
  decltype(partition_fragment_C(Config::MmaQk{}, Shape<_64, _64>{})) rP;   // (C, C)
  decltype(partition_fragment_C(Config::MmaQs{}, Shape<_64, _128>{})) rO;  // (C, M)
};

/// Which warps do what.
struct LinearWideRoles {
  using Config = LinearWideConfig;
  static __device__ __forceinline__ void run(const LinearCta& cta, Config::Shared& shared) {
    let_next_kernel_start();
    const int group = static_cast<int>(threadIdx.x) / 128;
    if (group < Config::kStates) {
      cutlass::arch::warpgroup_reg_alloc<Config::kRegistersOfState>();
      LinearWideState(shared).run(cta.chunks.count);
    } else if (group == Config::kStates) {
      cutlass::arch::warpgroup_reg_alloc<Config::kRegistersOfOutputs>();
      LinearWideOutputs(cta, shared).run();
    } else {
      cutlass::arch::warpgroup_reg_dealloc<Config::kRegistersOfSplitters>();
      LinearWideSplitter(cta, shared, static_cast<int>(threadIdx.x) - 128 * (Config::kStates + 1))
          .run(cta.chunks.count);
    }
  }
};

}  // namespace falchion::sm90
