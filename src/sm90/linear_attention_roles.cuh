// src/sm90/linear_attention_roles.cuh: which warps do what, for operands that the tensor cores take as they are.
#pragma once

#include "sm90/linear_attention_launch.cuh"

namespace falchion::sm90 {

template <class Config_>
struct LinearRoles {
  using Config = Config_;
  static __device__ __forceinline__ void run(const LinearCta& cta, typename Config::Shared& shared) {
    const int group = static_cast<int>(threadIdx.x) / 128;
    if (group == 0) {
      LinearState<Config> state(cta);
      start_state<Config>(cta, state, shared);
      state.template run<false>(cta.chunks.count, shared);
      finish_state(cta, state);
    } else if (group <= Config::kOutputs) {
      if (group == 1) make_tiles_ready<Config>(cta);
      LinearOutputs<Config>(cta, shared).run(group - 1);
    } else if (threadIdx.x % 128 == 0) {
      RingPosition<Config::kStages> at;
      if (cta.sums) load_chunks<Config, true>(cta, cta.summed, at, shared);
      load_chunks<Config, false>(cta, cta.chunks, at, shared);
    } else if (threadIdx.x % 128 == 32) {
      wait_for_earlier_kernels();
      store_chunks<Config>(cta, shared);
    }
  }
};

}  // namespace falchion::sm90
