// src/sm90/linear_attention_halves_roles.cuh: which warps do what in f32.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "sm90/linear_attention_halves.cuh"
#include "sm90/linear_attention_halves_split.cuh"
#include "sm90/linear_attention_launch.cuh"

namespace falchion::sm90 {

template <class Config_>
struct LinearHalvesRoles {
  using Config = Config_;
  static __device__ __forceinline__ void run(const LinearCta& cta, typename Config::Shared& shared) {
    const int group = static_cast<int>(threadIdx.x) / 128;
    if (group == 0) {
      cutlass::arch::warpgroup_reg_alloc<Config::kRegistersOfState>();
      LinearHalvesState<Config> state(cta);
      start_state<Config>(cta, state, shared);
      state.template run<false>(cta.chunks.count, shared);
      finish_state(cta, state);
    } else if (group == 1) {
      cutlass::arch::warpgroup_reg_alloc<Config::kRegistersOfOutputs>();
      make_tiles_ready<Config>(cta);
      LinearHalvesOutputs<Config>(cta, shared).run();
    } else if (group < 2 + Config::kSplitters) {
      cutlass::arch::warpgroup_reg_dealloc<Config::kRegistersOfSplitters>();
      LinearSplitter<Config>(static_cast<int>(threadIdx.x) - 256).run(cta.to_sum(), cta.chunks.count, shared);
    } else {
      cutlass::arch::warpgroup_reg_dealloc<Config::kRegistersOfMovers>();
      const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
      if (threadIdx.x % 32 > 0) return;
      if (warp == 0) {
        BoxLoader<Config, 0>(cta, shared).run();
      } else if (warp == 1) {
        BoxLoader<Config, 1>(cta, shared).run();
      } else if (warp == 2) {
        store_chunks<Config>(cta, shared);
        wait_for_earlier_kernels();  // for what comes after this one; none of them writes what this CTA does
      }
    }
  }
};

}  // namespace falchion::sm90
