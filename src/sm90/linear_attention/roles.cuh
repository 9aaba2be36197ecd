// src/sm90/linear_attention/roles.cuh: the work of each warp of a CTA in linear attention on Hopper in bf16, which the
// tensor cores multiply directly. docs/design/linear_attention.md, "On Hopper: warpgroups with one task each",
// describes and measures it.
#pragma once

#include "base/host_device.hpp"
#include "sm90/linear_attention/kernel.cuh"
#include "sm90/linear_attention/launch.cuh"
#include "sm90/linear_attention/store.cuh"

namespace falchion::sm90 {

/// For each chunk the roles wait for each other in this order, on rings of barriers in shared memory:
///   the producer thread         waits until a stage is empty; loads q, k and v
///   warpgroup 0 (LinearState)   waits for k and v, and for a free slot; passes S on, then adds K^T V to it
///   the others (LinearOutputs)  wait for q, k and v, for S, and for a free tile; they take turns with the chunks
///   the storing thread          waits for a tile of O; stores it
/// Before that, where sequences are cut into segments, the producer and warpgroup 0 go through the chunks that this CTA
/// sums, while the first output warpgroup prepares the tiles in which CTAs publish their sums.
template <class Config_>
struct LinearRoles {
  using Config = Config_;
  static FALCHION_DEVICE void run(const LinearCta& cta, typename Config::Shared& shared) {
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
