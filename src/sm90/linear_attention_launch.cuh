// src/sm90/linear_attention_launch.cuh: linear attention on Hopper: sums of the segments, the states that they start
// from (sm80/linear_attention_launch.cuh), then all chunks.
#pragma once

#include "sm90/linear_attention_chunks.cuh"

namespace falchion::sm90 {

/// kSums: only the states that the segments add, for all segments but the last.
template <class Config, bool kSums>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    linear_attention_chunks(const __grid_constant__ LinearAttentionArgs a, const __grid_constant__ LinearSweeps sweeps,
                            const __grid_constant__ AllLinearMaps maps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  const sm80::LinearBlock block(a, sweeps);
  const LinearSweep& sweep = sweeps.sweep[block.which];
  const int column0 = block.column_tile * Config::kColumns;
  if (column0 >= sweep.d_v) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) shared.full[i].init(1), shared.empty[i].init(4);
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  const ChunkRange range(a, sweep, block.segment);
  const LinearMaps& own = maps.of[block.which];
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128) load_chunks<Config, kSums>(own, sweep, range, block, column0, shared);
    return;
  }
  LinearChunks<Config> chunks(sweep, range, column0, shared);
  const sm80::StateSlot slot(a, sweep, block.which, block.b, block.h, block.segment);
  if constexpr (kSums) {
    chunks.run_state();
    chunks.for_each_of_state([&](int m, int e, float s) { slot.s[e * sweep.d_v + m] = s; });
    if (threadIdx.x == 0 && column0 == 0) *slot.faded = 0;
    return;
  }
  if (a.states != nullptr) {
    chunks.for_each_of_state([&](int m, int e, float& s) { s = slot.s[e * sweep.d_v + m]; });
  } else if (const float* s0 = sm80::state_of(sweep.initial, block.b, block.h); s0 != nullptr) {
    const View& x = sweep.initial;
    chunks.for_each_of_state(
        [&](int m, int e, float& s) { s = s0[e * x.stride[2] + m * x.stride[3]] * sweep.initial_scale; });
  }
  chunks.run(own.o, block.h / sweep.o.shared, block.b);
  if (block.segment + 1 < a.segments) return;
  if (float* s1 = sm80::state_of(sweep.final, block.b, block.h); s1 != nullptr) {
    const View& x = sweep.final;
    chunks.for_each_of_state(
        [&](int m, int e, float s) { s1[e * x.stride[2] + m * x.stride[3]] = s * sweep.final_scale; });
  }
}

template <class Config>
cudaError_t make_linear_maps(const LinearAttentionArgs& a, const LinearSweep& sweep, LinearMaps* maps) {
  using Element = typename Config::Element;
  const auto make = [&](CUtensorMap* map, const LinearSweep::Rows16& of, int d) {
    return make_tensor_map<Element>(map, of.x, TensorBox{a.b, a.s, a.h_v / of.shared, d, 64, 1, 64}, nullptr);
  };
  cudaError_t error = make(&maps->q, sweep.q, sweep.d_qk);
  if (error == cudaSuccess) error = make(&maps->k, sweep.k, sweep.d_qk);
  if (error == cudaSuccess) error = make(&maps->v, sweep.v, sweep.d_v);
  if (error == cudaSuccess) error = make(&maps->o, sweep.o, sweep.d_v);
  return error;
}

template <class Config>
int launch_linear_attention(LinearAttentionArgs a, const LinearSweeps& sweeps, void* stream) {
  const std::int64_t each = std::int64_t{sweeps.column_tiles} * sweeps.count * a.h_v * a.b;
  const std::int64_t starts = sm80::start_blocks(a, sweeps);
  if (each * a.segments * a.parts > INT32_MAX || starts > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (each == 0) return cudaSuccess;
  AllLinearMaps maps{};
  cudaError_t error = cudaSuccess;
  for (int i = 0; a.s > 0 && i < sweeps.count && error == cudaSuccess; ++i)  // without tokens nobody reads them
    error = make_linear_maps<Config>(a, sweeps.sweep[i], &maps.of[i]);
  if (a.segments == 1) a.states = nullptr;
  if (error == cudaSuccess && a.segments > 1)
    error =
        launch_kernel(linear_attention_chunks<Config, true>, static_cast<unsigned>(each * (a.segments - 1) * a.parts),
                      Config::kThreads, Config::kSharedBytes, stream, false, sm80::by_parts(a), sweeps, maps);
  if (error == cudaSuccess && a.segments > 1)
    error = launch_kernel(sm80::linear_attention_starts, static_cast<unsigned>(starts), sm80::kStartThreads, 0, stream,
                          false, sm80::by_parts(a), sweeps, a.parts);
  if (error == cudaSuccess)
    error = launch_kernel(linear_attention_chunks<Config, false>, static_cast<unsigned>(each * a.segments),
                          Config::kThreads, Config::kSharedBytes, stream, false, a, sweeps, maps);
  return error;
}

}  // namespace falchion::sm90
