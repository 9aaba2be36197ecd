// src/sm80/linear_attention/launch.cuh: launches linear attention. Where sequences are cut into segments there are
// three launches: the sums of the segments, then the start states of the segments, then all chunks. Otherwise there is
// only the last of them.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "gpu/linear_attention/block.cuh"
#include "gpu/linear_attention/entry.hpp"
#include "sm80/linear_attention/piece.cuh"
#include "tiles/linear_attention/sm80_workspace.hpp"

namespace falchion::sm80 {

/// One slot of the workspace (workspace.hpp).
struct StateSlot {
  float *s, *z, *faded;
  FALCHION_DEVICE StateSlot(const LinearAttentionArgs& a, const LinearSweep& sweep, int which, int b, int h,
                            int segment) {
    s = a.states + (((which * a.b + b) * a.h_v + h) * a.segments + segment) * a.parts * state_slot_size(a);
    z = s + a.d_qk * a.d_v;
    faded = z + (a.d_qk > a.d_v ? a.d_qk : a.d_v);
  }
};

/// With kSums it computes only each segment's contribution to the state, for all segments but the last.
template <class Chunks, bool kSums>
__global__ void __launch_bounds__(Chunks::Config::kThreads, Chunks::Config::kCtas)
    linear_attention_chunks(const __grid_constant__ LinearAttentionArgs a,
                            const __grid_constant__ LinearSweeps sweeps) {
  extern __shared__ __align__(128) unsigned char memory[];
  const LinearBlock block(a, sweeps);
  const LinearSweep& sweep = sweeps.sweep[block.which];
  const int column0 = block.column_tile * Chunks::kM;
  if (column0 >= sweep.d_v) return;
  const LinearPiece piece(a, sweep, block.b, block.h, block.segment, column0);
  Chunks chunks(a, sweep, piece, *reinterpret_cast<typename Chunks::Shared*>(memory));
  const StateSlot slot(a, sweep, block.which, block.b, block.h, block.segment);

  if constexpr (kSums) {
    const float faded = chunks.run_state();
    chunks.for_each_of_state([&](int m, int e, float s) { slot.s[e * sweep.d_v + m] = s; });
    chunks.for_each_of_z([&](int i, float z, bool speaks) {
      if (speaks) slot.z[i] = z;
    });
    if (threadIdx.x == 0 && column0 == 0) *slot.faded = faded;
    return;
  }
  if (a.states != nullptr) {
    chunks.for_each_of_state([&](int m, int e, float& s) { s = slot.s[e * sweep.d_v + m]; });
    chunks.for_each_of_z([&](int i, float& z, bool) { z = slot.z[i]; });
  } else if (const float* s0 = state_of(sweep.initial, block.b, block.h); s0 != nullptr) {
    const View& x = sweep.initial;
    chunks.for_each_of_state(
        [&](int m, int e, float& s) { s = s0[e * x.stride[2] + m * x.stride[3]] * sweep.initial_scale; });
    if (const float* z0 = state_of(sweep.initial_z, block.b, block.h); z0 != nullptr)
      chunks.for_each_of_z([&](int i, float& z, bool) { z = z0[i * sweep.initial_z.stride[2]] * sweep.initial_scale; });
  }
  chunks.run();
  if (block.segment + 1 < a.segments) return;
  const float scale = sweep.final_scale * chunks.behind_last();
  if (float* s1 = state_of(sweep.final, block.b, block.h); s1 != nullptr) {
    const View& x = sweep.final;
    chunks.for_each_of_state([&](int m, int e, float s) { s1[e * x.stride[2] + m * x.stride[3]] = s * scale; });
  }
  if (float* z1 = state_of(sweep.final_z, block.b, block.h); z1 != nullptr) {
    chunks.for_each_of_z([&](int i, float z, bool speaks) {
      if (speaks) z1[i * sweep.final_z.stride[2]] = z * scale;
    });
  }
  if constexpr (requires { chunks.tail(block.b, block.h); }) chunks.tail(block.b, block.h);
}

/// Returns the arguments for kernels that treat the parts of segments as segments.
inline LinearAttentionArgs by_parts(LinearAttentionArgs a) {
  a.segments *= a.parts;
  a.segment /= a.parts;
  a.parts = 1;
  return a;
}

/// Before this kernel, each slot holds the contribution of a part of a segment to the state. After it, the slot of the
/// first part of each segment holds the segment's start state. A thread has one element of one head. With many
/// segments, 2 or 8 threads share them: each thread sums its own segments, then starts from the sum of those before
/// them.
inline constexpr int kStartThreads = 256;
__host__ __device__ inline int start_groups(int segments) { return segments > 32 ? 8 : segments > 8 ? 2 : 1; }

static __global__ void __launch_bounds__(kStartThreads)
    linear_attention_starts(const __grid_constant__ LinearAttentionArgs a, const __grid_constant__ LinearSweeps sweeps,
                            int parts) {
  __shared__ float sum[kStartThreads], faded[8];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int groups = start_groups(a.segments);
  const int each_cta = kStartThreads / groups;
  const int elements = static_cast<int>(a.d_qk * a.d_v + (a.d_qk > a.d_v ? a.d_qk : a.d_v));
  const int tiles = (elements + each_cta - 1) / each_cta;
  const int lane = static_cast<int>(threadIdx.x) % each_cta;
  const int group = static_cast<int>(threadIdx.x) / each_cta;
  int x = static_cast<int>(blockIdx.x);
  const int element = x % tiles * each_cta + lane;
  x /= tiles;
  const int which = x % sweeps.count;
  const int head = x / sweeps.count;
  const int h = head % static_cast<int>(a.h_v);
  const int b = head / static_cast<int>(a.h_v);
  const LinearSweep& sweep = sweeps.sweep[which];
  const int of_s = sweep.d_qk * sweep.d_v;
  const bool inside = element < of_s + sweep.d_z;

  const StateSlot first(a, sweep, which, b, h, 0);
  const std::int64_t size = state_slot_size(a);
  const int last = a.segments - parts;  // the last segment's contribution is not needed
  const int each = (last + groups - 1) / groups;
  const int begin = min(group * each, last);
  const int end = min(begin + each, last);
  float running = 0, bits = 0;
  const auto over_segments = [&](auto f) {  // eight loads at a time, so that their latencies overlap
    for (int n = begin; n < end; n += 8) {
      float more[8], fades[8];
      CUTE_UNROLL
      for (int i = 0; i < 8; ++i) {
        const bool there = n + i < end;
        more[i] = there && inside ? first.s[(n + i) * size + element] : 0.f;
        fades[i] = there ? first.faded[(n + i) * size] : 0.f;
      }
      CUTE_UNROLL
      for (int i = 0; i < 8; ++i) {
        if (n + i >= end) break;
        f(n + i);
        running = running * exp2(fades[i]) + more[i];
        bits += fades[i];
      }
    }
  };
  if (groups > 1) over_segments([](int) {});
  sum[threadIdx.x] = running;
  if (lane == 0) faded[group] = bits;
  __syncthreads();
  if (!inside) return;
  const int e = element < of_s ? element / sweep.d_v : element - of_s, m = element < of_s ? element % sweep.d_v : 0;
  const View& from = element < of_s ? sweep.initial : sweep.initial_z;
  const float* s0 = state_of(from, b, h);
  running = 0;
  if (s0 != nullptr) running = s0[e * from.stride[2] + m * from.stride[3]] * sweep.initial_scale;
  for (int i = 0; i < group; ++i) running = running * exp2(faded[i]) + sum[i * each_cta + lane];
  over_segments([&](int n) {
    if (n % parts == 0) first.s[n * size + element] = running;
  });
  if (end == last && (begin < last || group == 0)) first.s[last * size + element] = running;
}

inline std::int64_t start_blocks(const LinearAttentionArgs& a, const LinearSweeps& sweeps) {
  const std::int64_t elements = a.d_qk * a.d_v + std::max(a.d_qk, a.d_v);
  const std::int64_t each_cta = kStartThreads / start_groups(a.segments * a.parts);
  return (elements + each_cta - 1) / each_cta * sweeps.count * a.h_v * a.b;
}

template <class Chunks>
int launch_linear_attention(LinearAttentionArgs a, const LinearSweeps& sweeps, void* stream) {
  using Config = typename Chunks::Config;
  const std::int64_t each = std::int64_t{sweeps.column_tiles} * sweeps.count * a.h_v * a.b;
  const std::int64_t starts = start_blocks(a, sweeps);
  if (each * a.segments * a.parts > INT32_MAX || starts > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (each == 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  if (a.segments == 1) a.states = nullptr;
  if (a.segments > 1)
    error = launch_kernel<linear_attention_chunks<Chunks, true>>(
        static_cast<unsigned>(each * (a.segments - 1) * a.parts), Config::kThreads, Config::kSharedBytes, stream, false,
        by_parts(a), sweeps);
  if (error == cudaSuccess && a.segments > 1)
    error = launch_kernel<linear_attention_starts>(static_cast<unsigned>(starts), kStartThreads, 0, stream, false,
                                                   by_parts(a), sweeps, a.parts);
  if (error == cudaSuccess)
    error = launch_kernel<linear_attention_chunks<Chunks, false>>(
        static_cast<unsigned>(each * a.segments), Config::kThreads, Config::kSharedBytes, stream, false, a, sweeps);
  return error;
}

}  // namespace falchion::sm80
