// src/sm90/linear_attention/halves/roles.cuh: the work of each warp of a CTA in linear attention on Hopper in f32,
// where each number is split into two f16 numbers. docs/design/linear_attention.md, "f32 on Hopper: a high and a low
// part", describes and measures it.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "base/host_device.hpp"
#include "sm90/linear_attention/halves/kernel.cuh"
#include "sm90/linear_attention/halves/split.cuh"
#include "sm90/linear_attention/launch.cuh"
#include "sm90/linear_attention/store.cuh"

namespace falchion::sm90 {

/// For each chunk the roles wait for each other in this order, on rings of barriers in shared memory:
///   two loader threads (BoxLoader)           wait until a box is empty; load 64 x 64 floats of k, v or q
///   two warpgroups (LinearSplitter)          wait for a box and for a free stage; split k and v, at d 64 also q
///   warpgroup 0 (LinearHalvesState)          waits for k and v and for a free slot; passes S on, then adds K^T V to it
///   warpgroup 1 (LinearHalvesOutputs)        waits for q, k, v and S and for a free place for O; makes O
///   the storing thread (store_chunks)        waits for O; stores it
/// Before that, where sequences are cut into segments, the loaders, the splitters and warpgroup 0 go through the chunks
/// that this CTA sums, while warpgroup 1 prepares the tiles in which CTAs publish their sums.
template <class Config_>
struct LinearHalvesRoles {
  using Config = Config_;
  static FALCHION_DEVICE void run(const LinearCta& cta, typename Config::Shared& shared) {
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
        // The previous kernel, which may still run, belongs to the same call and writes other tensors, so no CTA has to
        // wait for it before its work. Each CTA waits for it at its end. So a later kernel, which waits for this one,
        // cannot overtake the previous one either.
        wait_for_earlier_kernels();
      }
    }
  }
};

}  // namespace falchion::sm90
