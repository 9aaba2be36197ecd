// src/sm90/linear_attention_segments.cuh: what a segment of a sequence starts from, in the launch that goes over its
// chunks: each CTA sums K^T V of its own segment, tells the others, and looks back at those before it. It waits for
// CTAs of lower index alone, and those have been started by then, as in a scan in one pass: nothing hangs where some of
// the grid have to wait for an SM. Nothing is launched before and nothing asked of the workspace: each CTA empties what
// it will tell, and says so with the number of the launch.
#pragma once

#include <cuda/atomic>

#include "blocks/sm90_messages.cuh"
#include "sm90/linear_attention_chunks.cuh"
#include "sm90/linear_attention_workspace.hpp"

namespace falchion::sm90 {

inline std::int64_t grid_columns(const LinearAttentionArgs& a, const LinearSweeps& sweeps) {
  return std::int64_t{sweeps.column_tiles} * sweeps.count * a.h_v * a.b;
}

/// One column's tiles, as a warpgroup sees them: 16 bytes of each thread in turn, a message each.
template <class Config>
class ColumnTiles : public SegmentTiles {
  const LinearCta& cta;
  const int columns, column;

 public:
  static constexpr int kTile = Config::kD * Config::kColumns, kMessages = kTile / 512;  // floats; of a thread
  // The first part of this CTA's segment. The earlier ones that it reads by themselves, and totals of those before
  // them; the next total it makes of the former where no part is left over.
  const int first;
  const bool makes_total;
  const int alone, before;

  __device__ __forceinline__ explicit ColumnTiles(const LinearCta& cta)
      : SegmentTiles(cta.a),
        cta(cta),
        columns(static_cast<int>(gridDim.x) / cta.a.segments),
        column(static_cast<int>(blockIdx.x) % columns),
        first(cta.block.segment * cta.a.parts),
        makes_total(first > 0 && first % group == 0),
        alone(makes_total ? group : first % group),
        before(first / group - (makes_total ? 1 : 0)) {}

  __device__ __forceinline__ float4* tile(int index) const {
    return reinterpret_cast<float4*>(cta.a.states + (std::int64_t{index} * columns + column) * kTile) +
           threadIdx.x % 128;
  }

  /// Of the outputs' first warpgroup, while sums are made: empties what this CTA will tell, and waits for those it will
  /// hear to be empty.
  __device__ __forceinline__ void make_ready() const {
    if (cta.sums) empty(cta.block.segment);
    if (makes_total) empty(total(before));
    sync_threads<128>(kOfEmptied);
    if (threadIdx.x % 128 == 0) {
      if (cta.sums) emptied(cta.block.segment).store(cta.number, cuda::memory_order_release);
      if (makes_total) emptied(total(before)).store(cta.number, cuda::memory_order_release);
    }
    for (int i = static_cast<int>(threadIdx.x) % 128; i < alone + before; i += 128)
      while (emptied(i < alone ? first - alone + i : total(i - alone)).load(cuda::memory_order_acquire) != cta.number) {
      }
    arrive_threads<256>(kOfTiles);
  }
  /// Of the warpgroup that carries S, before it tells or hears any.
  __device__ __forceinline__ void wait_until_ready() const { sync_threads<256>(kOfTiles); }
  /// Of the last segment, when it has heard all: who has told something, be it through a total, has waited before, so
  /// nobody asks for numbers any more. A graph that is launched again comes with the same one.
  __device__ __forceinline__ void forget() const {
    for (int i = static_cast<int>(threadIdx.x) % 128; i < start(); i += 128)
      emptied(i).store(0, cuda::memory_order_relaxed);
  }

 private:
  __device__ __forceinline__ void empty(int index) const {
    CUTE_UNROLL
    for (int i = 0; i < kMessages; ++i) tell(tile(index) + i * 128, no_message());
  }
  __device__ __forceinline__ auto emptied(int index) const {
    auto* const numbers = reinterpret_cast<std::uint64_t*>(cta.a.states + std::int64_t{count()} * columns * kTile);
    return cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>(numbers[std::int64_t{index} * columns + column]);
  }
};

/// S and the tiles of its column, for the warpgroup that carries S.
template <class Config, class State>
class LookBack {
 public:
  __device__ __forceinline__ LookBack(const LinearCta& cta, State& state) : tiles(cta), state(state) {}

  /// What segment 0 starts from: the last one may overwrite where it comes from before this one reads it again.
  __device__ __forceinline__ void keep_start() { publish(tiles.start()); }
  __device__ __forceinline__ void add_start() { add(tiles.start(), 1); }

  __device__ __forceinline__ void publish(int index) {
    CUTE_UNROLL
    for (int i = 0; i < Tiles::kMessages; ++i)
      tell(tiles.tile(index) + i * 128, make_float4(state.element(4 * i), state.element(4 * i + 1),
                                                    state.element(4 * i + 2), state.element(4 * i + 3)));
  }
  /// S += the parts before this segment.
  __device__ __forceinline__ void add_earlier() {
    add(tiles.first - tiles.alone, tiles.alone);
    if (tiles.makes_total) publish(tiles.total(tiles.before));
    add(tiles.total(0), tiles.before);
  }

  const ColumnTiles<Config> tiles;

 private:
  using Tiles = ColumnTiles<Config>;
  static constexpr int kFours = 8, kHalves = Tiles::kMessages / kFours, kAtOnce = kHalves == 1 ? 2 : 1;

  /// S += `count` tiles. 16 KB are on their way at once, twice that at d 64.
  __device__ __forceinline__ void add(int first, int count) {
    CUTE_UNROLL
    for (int half = 0; half < kHalves; ++half) {
      CUTE_NO_UNROLL
      for (int n = 0; n < count; n += kAtOnce) {
        float4 more[kAtOnce][kFours];
        while (!hear_all(first + n, min(kAtOnce, count - n), half, more)) {}
        CUTE_UNROLL
        for (int j = 0; j < kAtOnce; ++j) {
          if (n + j >= count) break;
          CUTE_UNROLL
          for (int i = 0; i < kFours; ++i) {
            const int at = (half * kFours + i) * 4;
            state.element(at) += more[j][i].x, state.element(at + 1) += more[j][i].y;
            state.element(at + 2) += more[j][i].z, state.element(at + 3) += more[j][i].w;
          }
        }
      }
    }
  }
  /// Halves of tiles; whether all of them were there.
  __device__ __forceinline__ bool hear_all(int first, int count, int half, float4 (&more)[kAtOnce][kFours]) const {
    CUTE_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {  // without a condition: each would wait for the one before it
      const float4* const from = tiles.tile(first + min(j, count - 1)) + half * kFours * 128;
      CUTE_UNROLL
      for (int i = 0; i < kFours; ++i) more[j][i] = hear(from + i * 128);
    }
    bool all = true;
    CUTE_UNROLL
    for (const auto& of_tile : more) CUTE_UNROLL
    for (const float4& x : of_tile) all &= is_message(x);
    return all;
  }

  State& state;
};

}  // namespace falchion::sm90
