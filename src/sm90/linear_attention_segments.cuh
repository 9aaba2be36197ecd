// src/sm90/linear_attention_segments.cuh: what a segment of a sequence starts from, in the launch that goes over its
// chunks: each CTA sums K^T V of its own segment, tells the others, and looks back at those before it. It waits for
// CTAs of lower index alone, and those have been started by then, as in a scan in one pass: nothing hangs where some of
// the grid have to wait for an SM.
#pragma once

#include <cuda/atomic>

#include "sm90/linear_attention_chunks.cuh"

namespace falchion::sm90 {

/// The workspace of a grid: for each of its columns (CTAs with the same head and 64 columns, one a segment) tiles of S,
/// then for each tile a flag, which is 0 before the launch. Tiles: the sums of parts; where these are many, the totals
/// of so many parts each that a CTA reads about twice the root of their number; what segment 0 starts from.
struct SegmentTiles {
  int parts, group, totals;
  __host__ __device__ explicit SegmentTiles(const LinearAttentionArgs& a)
      : parts((a.segments - 1) * a.parts), group(group_of(parts)), totals(parts / group) {}
  __host__ __device__ int total(int i) const { return parts + i; }
  __host__ __device__ int start() const { return parts + totals; }
  __host__ __device__ int count() const { return start() + 1; }

 private:
  /// Up to 8 each is read by itself: a total would have to be waited for, too.
  static __host__ __device__ int group_of(int parts) {
    int root = 3;
    while (root * root < parts) ++root;
    return parts <= 8 ? parts + 1 : root;
  }
};

inline std::int64_t grid_columns(const LinearAttentionArgs& a, const LinearSweeps& sweeps) {
  return std::int64_t{sweeps.column_tiles} * sweeps.count * a.h_v * a.b;
}
template <class Config>
std::int64_t floats_of_tiles(const LinearAttentionArgs& a, const LinearSweeps& sweeps) {
  return SegmentTiles(a).count() * grid_columns(a, sweeps) * Config::kD * Config::kColumns;
}
template <class Config>
std::size_t segments_workspace(const LinearAttentionArgs& a, const LinearSweeps& sweeps) {
  if (a.segments == 1) return 0;
  const std::int64_t flags = SegmentTiles(a).count() * grid_columns(a, sweeps);
  return static_cast<std::size_t>(floats_of_tiles<Config>(a, sweeps) + flags) * sizeof(float);
}

inline constexpr int kClearThreads = 256;
static __global__ void __launch_bounds__(kClearThreads) linear_attention_clear(unsigned* flags, int count) {
  let_next_kernel_start();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) flags[i] = 0;
}

/// One column's tiles, as the warpgroup that carries S sees them.
template <class State>
class LookBack {
 public:
  __device__ __forceinline__ LookBack(const LinearCta& cta, State& state)
      : tiles(cta.a),
        cta(cta),
        state(state),
        columns(static_cast<int>(gridDim.x) / cta.a.segments),
        column(static_cast<int>(blockIdx.x) % columns) {}

  /// What segment 0 starts from: the last one may overwrite where it comes from before this one reads it again.
  __device__ __forceinline__ void keep_start() { state.store(tile(tiles.start())); }
  __device__ __forceinline__ void add_start() { state.add(tile(tiles.start()), 0, 1); }

  __device__ __forceinline__ void publish(int index) {
    state.store(tile(index));
    sync_threads<128>(kOfState);
    if (threadIdx.x % 128 == 0) flag(index).store(1, cuda::memory_order_release);
  }
  /// S += the parts before this segment.
  __device__ __forceinline__ void add_earlier() {
    const int before = cta.block.segment * cta.a.parts;
    int totals = before / tiles.group, alone = before % tiles.group;
    const bool first_of_group = alone == 0;  // its CTA makes the total
    if (first_of_group) --totals, alone = tiles.group;
    add(before - alone, alone);
    if (first_of_group) publish(tiles.total(totals));
    add(tiles.total(0), totals);
  }

 private:
  __device__ __forceinline__ float* tile(int index) const {
    return cta.a.states + (std::int64_t{index} * columns + column) * State::kTile;
  }
  __device__ __forceinline__ auto flag(int index) const {
    auto* const flags =
        reinterpret_cast<unsigned*>(cta.a.states + std::int64_t{tiles.count()} * columns * State::kTile);
    return cuda::atomic_ref<unsigned, cuda::thread_scope_device>(flags[std::int64_t{index} * columns + column]);
  }
  __device__ __forceinline__ void add(int first, int count) {
    for (int i = static_cast<int>(threadIdx.x) % 128; i < count; i += 128)
      while (flag(first + i).load(cuda::memory_order_acquire) == 0) {}
    sync_threads<128>(kOfState);
    state.add(tile(first), std::int64_t{columns} * State::kTile, count);
  }

  const SegmentTiles tiles;
  const LinearCta& cta;
  State& state;
  const int columns, column;
};

}  // namespace falchion::sm90
