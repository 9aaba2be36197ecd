// src/sm90/linear_attention_launch.cuh: linear attention on Hopper: sums of the segments, the states that they start
// from (sm80/linear_attention_launch.cuh), then all chunks.
#pragma once

#include "sm90/linear_attention_chunks.cuh"

namespace falchion::sm90 {

/// Three slots at most are summed by each segment that starts from them, 0.7 us each; more by a kernel of its own, and
/// so if the last segment may overwrite what the others start from.
__host__ __device__ inline bool sums_own_start(const LinearAttentionArgs& a, const LinearSweeps& sweeps) {
  bool reads = false, writes = false;
  for (int i = 0; i < sweeps.count; ++i) {
    reads |= sweeps.sweep[i].initial.data != nullptr;
    writes |= sweeps.sweep[i].final.data != nullptr;
  }
  return a.segments * a.parts <= 4 && !(reads && writes);
}

/// S before the first chunk.
template <class State>
__device__ __forceinline__ void start_state(const LinearAttentionArgs& a, const LinearSweep& sweep,
                                            const sm80::LinearBlock& block, bool own_start, State& state) {
  if (const View& x = sweep.initial; a.states == nullptr || own_start)
    if (const float* s0 = sm80::state_of(x, block.b, block.h); s0 != nullptr)
      state.add(s0, x.stride[2], x.stride[3], sweep.initial_scale);
  if (a.states == nullptr) return;
  const sm80::StateSlot first(a, sweep, block.which, block.b, block.h, own_start ? 0 : block.segment);
  const int slots = own_start ? block.segment * a.parts : 1;
  CUTE_NO_UNROLL
  for (int i = 0; i < slots; ++i) state.add(first.s + i * sm80::state_slot_size(a), sweep.d_v, 1, 1.f);
}
/// S behind the last one.
template <class State>
__device__ __forceinline__ void finish_state(const LinearAttentionArgs& a, const LinearSweep& sweep,
                                             const sm80::LinearBlock& block, State& state) {
  float* const s1 = sm80::state_of(sweep.final, block.b, block.h);
  if (block.segment + 1 < a.segments || s1 == nullptr) return;
  const View& x = sweep.final;
  state.for_each([&](int m, int e, float s) { s1[e * x.stride[2] + m * x.stride[3]] = s * sweep.final_scale; });
}

/// All chunks.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    linear_attention_chunks(const __grid_constant__ LinearAttentionArgs a, const __grid_constant__ LinearSweeps sweeps,
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
    LinearState<Config> state(sweep, column0);
    wait_for_earlier_kernels();
    start_state(a, sweep, block, sums_own_start(a, sweeps), state);
    state.template run<false>(chunks.count, shared);
    finish_state(a, sweep, block, state);
  } else if (group <= Config::kOutputs) {
    LinearOutputs<Config>(sweep, chunks, shared).run(group - 1);
  } else if (threadIdx.x % 128 == 0) {
    load_chunks<Config, false>(own, sweep, chunks, block, column0, shared);
  } else if (threadIdx.x % 128 == 32) {
    wait_for_earlier_kernels();
    store_chunks<Config>(own.o, chunks, block, block.h / sweep.o.shared, column0, shared);
  }
}

/// Of what a CTA has summed.
template <class State>
__device__ __forceinline__ void store_sum(const LinearAttentionArgs& a, const LinearSweep& sweep,
                                          const sm80::LinearBlock& block, State& state) {
  const sm80::StateSlot slot(a, sweep, block.which, block.b, block.h, block.segment);
  state.for_each([&](int m, int e, float s) { slot.s[e * sweep.d_v + m] = s; });
  if (threadIdx.x == 0 && block.column_tile == 0) *slot.faded = 0;
}

/// Only the states that the segments add, for all segments but the last.
template <class Config>
__global__ void __launch_bounds__(Config::kThreadsOfSums, 2)
    linear_attention_sums(const __grid_constant__ LinearAttentionArgs a, const __grid_constant__ LinearSweeps sweeps,
                          const __grid_constant__ AllLinearMaps maps) {
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
    LinearState<Config> state(sweep, column0);
    state.template run<true>(chunks.count, shared);
    store_sum(a, sweep, block, state);
  } else if (threadIdx.x == 128) {
    load_chunks<Config, true>(maps.of[block.which], sweep, chunks, block, column0, shared);
  }
}

/// Boxes of 64 tokens and 128 bytes of each.
template <class Element>
cudaError_t make_linear_maps(const LinearAttentionArgs& a, const LinearSweep& sweep, LinearMaps* maps) {
  constexpr int kBox = 128 / sizeof(Element);
  const auto make = [&](CUtensorMap* map, const LinearSweep::Rows16& of, int d) {
    return make_tensor_map<Element>(map, of.x, TensorBox{a.b, a.s, a.h_v / of.shared, d, kBox, 1, 64}, nullptr);
  };
  cudaError_t error = make(&maps->q, sweep.q, sweep.d_qk);
  if (error == cudaSuccess) error = make(&maps->k, sweep.k, sweep.d_qk);
  if (error == cudaSuccess) error = make(&maps->v, sweep.v, sweep.d_v);
  if (error == cudaSuccess) error = make(&maps->o, sweep.o, sweep.d_v);
  return error;
}

/// sums(args): enqueues the sums of parts; chunks(early): what comes then.
template <class Sums, class Chunks>
int launch_segments(const LinearAttentionArgs& a, const LinearSweeps& sweeps, void* stream, Sums sums, Chunks chunks) {
  const std::int64_t each = std::int64_t{sweeps.column_tiles} * sweeps.count * a.h_v * a.b;
  const std::int64_t starts = sm80::start_blocks(a, sweeps);
  if (each * a.segments * a.parts > INT32_MAX || starts > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (each == 0) return cudaSuccess;
  if (a.segments == 1) return chunks(static_cast<unsigned>(each), false);
  // Within this call a kernel may start before the one before it is done: what it reads and writes until it waits
  // belongs to the caller, and nothing older runs any more.
  int error = sums(static_cast<unsigned>(each * (a.segments - 1) * a.parts));
  if (error == cudaSuccess && !sums_own_start(a, sweeps))
    error = launch_kernel(sm80::linear_attention_starts, static_cast<unsigned>(starts), sm80::kStartThreads, 0, stream,
                          true, sm80::by_parts(a), sweeps, a.parts);
  return error == cudaSuccess ? chunks(static_cast<unsigned>(each * a.segments), true) : error;
}

template <class Element>
cudaError_t make_linear_maps(const LinearAttentionArgs& a, const LinearSweeps& sweeps, AllLinearMaps* maps) {
  cudaError_t error = cudaSuccess;
  for (int i = 0; a.s > 0 && a.b * a.h_v > 0 && i < sweeps.count && error == cudaSuccess; ++i)  // else nobody reads
    error = make_linear_maps<Element>(a, sweeps.sweep[i], &maps->of[i]);
  return error;
}

/// Element: of q, k, v and o in memory.
template <class Config, class Element, class Kernel>
int launch_linear_attention(Kernel sums, Kernel chunks, LinearAttentionArgs a, const LinearSweeps& sweeps,
                            void* stream) {
  AllLinearMaps maps{};
  const cudaError_t error = make_linear_maps<Element>(a, sweeps, &maps);
  if (error != cudaSuccess) return error;
  if (a.segments == 1) a.states = nullptr;
  return launch_segments(
      a, sweeps, stream,
      [&](unsigned blocks) {
        return launch_kernel(sums, blocks, Config::kThreadsOfSums, Config::kSharedBytesOfSums, stream, false,
                             sm80::by_parts(a), sweeps, maps);
      },
      [&](unsigned blocks, bool early) {
        return launch_kernel(chunks, blocks, Config::kThreads, Config::kSharedBytes, stream, early, a, sweeps, maps);
      });
}

}  // namespace falchion::sm90
