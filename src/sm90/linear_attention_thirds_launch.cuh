// src/sm90/linear_attention_thirds_launch.cuh: linear attention in f32 on Hopper.
#pragma once

#include "sm90/linear_attention_launch.cuh"
#include "sm90/linear_attention_thirds.cuh"

namespace falchion::sm90 {

__device__ __forceinline__ float* output_rows(const LinearSweep& sweep, const sm80::LinearBlock& block) {
  const View& o = sweep.o.x;
  return static_cast<float*>(o.data) + block.b * o.stride[0] + block.h / sweep.o.shared * o.stride[2];
}

/// All chunks.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    linear_attention_thirds(const __grid_constant__ LinearAttentionArgs a,
                            const __grid_constant__ LinearSweeps sweeps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  const sm80::LinearBlock block(a, sweeps);
  const LinearSweep& sweep = sweeps.sweep[block.which];
  const int column0 = block.column_tile * Config::kColumns, rows = static_cast<int>(a.s);
  if (column0 >= sweep.d_v) return;
  if (threadIdx.x == 0) shared.init();
  __syncthreads();
  const ChunkRange chunks(a, sweep, block.segment);

  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 0) {
    LinearThirdsState<Config> state(sweep, column0);
    wait_for_earlier_kernels();
    start_state(a, sweep, block, sums_own_start(a, sweeps), state);
    state.template run<false>(chunks.count, shared);
    finish_state(a, sweep, block, state);
  } else if (group == 1) {
    wait_for_earlier_kernels();
    LinearThirdsOutputs<Config>(sweep, chunks, column0, shared)
        .run(output_rows(sweep, block), sweep.o.x.stride[1], rows);
  } else {
    LinearSplitter<Config, false>(sweep, chunks, block, column0, rows).run(shared);
  }
}

/// Only the states that the segments add, for all segments but the last.
template <class Config>
__global__ void __launch_bounds__(Config::kThreadsOfSums, 1)
    linear_attention_sums_of_thirds(const __grid_constant__ LinearAttentionArgs a,
                                    const __grid_constant__ LinearSweeps sweeps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Config::Chunks*>(memory);
  const sm80::LinearBlock block(a, sweeps);
  const LinearSweep& sweep = sweeps.sweep[block.which];
  const int column0 = block.column_tile * Config::kColumns;
  if (column0 >= sweep.d_v) return;
  let_next_kernel_start();
  if (threadIdx.x == 0) shared.init_chunks(4);
  __syncthreads();
  const ChunkRange chunks(a, sweep, block.segment);
  if (threadIdx.x < 128) {
    LinearThirdsState<Config> state(sweep, column0);
    state.template run<true>(chunks.count, shared);
    store_sum(a, sweep, block, state);
  } else {
    LinearSplitter<Config, true>(sweep, chunks, block, column0, static_cast<int>(a.s)).run(shared);
  }
}

template <class Config>
int launch_linear_thirds(LinearAttentionArgs a, const LinearSweeps& sweeps, void* stream) {
  if (a.segments == 1) a.states = nullptr;
  return launch_segments(
      a, sweeps, stream,
      [&](unsigned blocks) {
        return launch_kernel(linear_attention_sums_of_thirds<Config>, blocks, Config::kThreadsOfSums,
                             Config::kSharedBytesOfSums, stream, false, sm80::by_parts(a), sweeps);
      },
      [&](unsigned blocks, bool early) {
        return launch_kernel(linear_attention_thirds<Config>, blocks, Config::kThreads, Config::kSharedBytes, stream,
                             early, a, sweeps);
      });
}

}  // namespace falchion::sm90
