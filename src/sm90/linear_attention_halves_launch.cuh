// src/sm90/linear_attention_halves_launch.cuh: the kernels of linear attention in f32 on Hopper.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "sm90/linear_attention_halves.cuh"
#include "sm90/linear_attention_launch.cuh"

namespace falchion::sm90 {

/// All chunks.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    linear_attention_halves(const __grid_constant__ LinearAttentionArgs a, const __grid_constant__ LinearSweeps sweeps,
                            const __grid_constant__ AllLinearMaps maps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  const sm80::LinearBlock block(a, sweeps);
  const LinearSweep& sweep = sweeps.sweep[block.which];
  const int column0 = block.column_tile * Config::kColumns;
  if (column0 >= sweep.d_v) return;
  if (threadIdx.x == 0) shared.init();
  __syncthreads();
  const ChunkRange chunks(a, sweep, block.segment);
  const LinearMaps& own = maps.of[block.which];

  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 0) {
    cutlass::arch::warpgroup_reg_alloc<Config::kRegistersOfState>();
    LinearHalvesState<Config> state(sweep, column0);
    wait_for_earlier_kernels();
    start_state(a, sweep, block, sums_own_start(a, sweeps), state);
    state.template run<false>(chunks.count, shared);
    finish_state(a, sweep, block, state);
  } else if (group == 1) {
    cutlass::arch::warpgroup_reg_alloc<Config::kRegistersOfOutputs>();
    LinearHalvesOutputs<Config>(sweep, chunks, shared).run();
  } else if (group < 2 + Config::kSplitters) {
    cutlass::arch::warpgroup_reg_dealloc<Config::kRegistersOfSplitters>();
    LinearSplitter<Config, Config::kSplitters>(static_cast<int>(threadIdx.x) - 256).run(chunks.count, shared);
  } else {
    cutlass::arch::warpgroup_reg_dealloc<Config::kRegistersOfMovers>();
    if (threadIdx.x % 128 == 0) {
      load_k_and_v<Config>(own, sweep, chunks, block, column0, shared);
    } else if (threadIdx.x % 128 == 32) {
      load_q<Config>(own, sweep, chunks, block, shared);
    } else if (threadIdx.x % 128 == 64) {
      wait_for_earlier_kernels();
      store_chunks<Config>(own.o, chunks, block, block.h / sweep.o.shared, column0, shared);
    }
  }
}

/// Only the states that the segments add, for all segments but the last.
template <class Config>
__global__ void __launch_bounds__(Config::kThreadsOfSums, 1)
    linear_attention_sums_of_halves(const __grid_constant__ LinearAttentionArgs a,
                                    const __grid_constant__ LinearSweeps sweeps,
                                    const __grid_constant__ AllLinearMaps maps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Config::Chunks*>(memory);
  const sm80::LinearBlock block(a, sweeps);
  const LinearSweep& sweep = sweeps.sweep[block.which];
  const int column0 = block.column_tile * Config::kColumns;
  if (column0 >= sweep.d_v) return;
  let_next_kernel_start();
  if (threadIdx.x == 0) shared.init_chunks(Config::kSplittersOfSums, 1);
  __syncthreads();
  const ChunkRange chunks(a, sweep, block.segment);
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 0) {
    cutlass::arch::warpgroup_reg_alloc<Config::kRegistersOfState>();
    LinearHalvesState<Config> state(sweep, column0);
    state.template run<true>(chunks.count, shared);
    store_sum(a, sweep, block, state);
  } else if (group <= Config::kSplittersOfSums) {
    cutlass::arch::warpgroup_reg_dealloc<Config::kRegistersOfSplitters>();
    LinearSplitter<Config, Config::kSplittersOfSums>(static_cast<int>(threadIdx.x) - 128).run(chunks.count, shared);
  } else {
    cutlass::arch::warpgroup_reg_dealloc<Config::kRegistersOfMovers>();
    if (threadIdx.x % 128 == 0) load_k_and_v<Config>(maps.of[block.which], sweep, chunks, block, column0, shared);
  }
}

}  // namespace falchion::sm90
