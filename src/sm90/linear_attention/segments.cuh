// src/sm90/linear_attention/segments.cuh: how the CTA of a segment gets the state that its segment starts from, in the
// same launch that goes over the chunks. Each CTA sums K^T V of its own segment, publishes the sum in a tile of the
// workspace, and looks back: it adds up what the CTAs of earlier segments have published. It waits only for CTAs of
// lower index, which the device starts first, as in a single-pass scan. So there is no deadlock when part of the grid
// has to wait for an SM.
//
// No other kernel has to prepare the workspace, which may hold anything: each CTA empties the tiles that it will
// publish, and then stores the number of the launch beside them. docs/design/linear_attention.md, "Few heads on Hopper:
// one launch that looks back", describes and measures it.
#pragma once

#include <cuda/atomic>

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_messages.cuh"
#include "sm90/linear_attention/cta.cuh"
#include "tiles/linear_attention/sm90_workspace.hpp"

namespace falchion::sm90 {

/// The columns of the grid. A column is the CTAs with the same head, sweep and columns of v and o, one for each
/// segment.
inline std::int64_t grid_columns(const LinearAttentionArgs& a, const LinearSweeps& sweeps) {
  return std::int64_t{sweeps.column_tiles} * sweeps.count * a.h_v * a.b;
}

/// The tiles of one column of the grid, as a warpgroup reads and writes them. A tile consists of messages of 16 bytes,
/// which the 128 threads write in turn.
template <class Config>
class ColumnTiles : public SegmentTiles {
  const LinearCta& cta;
  const int columns, column;

 public:
  static constexpr int kTile = Config::kD * Config::kColumns;  // floats of a tile of the state
  static constexpr int kMessages = kTile / 512;                // messages of a thread
  const int first;  // the first part of this CTA's segment; S starts from the sum of all parts before it
  // The CTA reads the `alone` parts right before `first` one by one, and `before` totals for all parts before those.
  // Where `first` is a multiple of the parts in a total, the CTA itself makes the total of the parts that it has read
  // one by one, and publishes it for later segments.
  const bool makes_total;
  const int alone, before;

  FALCHION_DEVICE explicit ColumnTiles(const LinearCta& cta)
      : SegmentTiles(cta.a),
        cta(cta),
        columns(static_cast<int>(gridDim.x) / cta.a.segments),
        column(static_cast<int>(blockIdx.x) % columns),
        first(cta.block.segment * cta.a.parts),
        makes_total(first > 0 && first % group == 0),
        alone(makes_total ? group : first % group),
        before(first / group - (makes_total ? 1 : 0)) {}

  /// The address of this thread's first message of a tile.
  FALCHION_DEVICE float4* tile(int index) const {
    return reinterpret_cast<float4*>(cta.a.states + (std::int64_t{index} * columns + column) * kTile) +
           threadIdx.x % 128;
  }

  /// For the first output warpgroup, while the sums are made. It empties the tiles that this CTA will publish; once all
  /// of its threads have done so, it stores the number of the launch for each of these tiles; it waits until the CTAs
  /// whose tiles this CTA will read have stored that number for them; and it releases the warpgroup that carries S
  /// (kOfTiles).
  FALCHION_DEVICE void make_ready() const {
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
  /// For the warpgroup that carries S, before it publishes or reads any tile.
  FALCHION_DEVICE void wait_until_ready() const { sync_threads<256>(kOfTiles); }
  /// The last segment calls this after it has read all tiles. It sets the numbers to 0, because a CUDA graph that runs
  /// again has the same number, and its CTAs would take the tiles for empty. No CTA waits for a number any more at that
  /// time: each one has done so before it published its tile, and the last segment has read every tile, directly or in
  /// a total.
  FALCHION_DEVICE void forget() const {
    for (int i = static_cast<int>(threadIdx.x) % 128; i < start(); i += 128)
      emptied(i).store(0, cuda::memory_order_relaxed);
  }

 private:
  /// Makes all messages of a tile empty.
  FALCHION_DEVICE void empty(int index) const {
    CUTE_UNROLL
    for (int i = 0; i < kMessages; ++i) tell(tile(index) + i * 128, no_message());
  }
  /// The number of the launch that has emptied a tile. These numbers follow all tiles of the workspace.
  FALCHION_DEVICE auto emptied(int index) const {
    auto* const numbers = reinterpret_cast<std::uint64_t*>(cta.a.states + std::int64_t{count()} * columns * kTile);
    return cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>(numbers[std::int64_t{index} * columns + column]);
  }
};

/// What the warpgroup that carries S does with the tiles: it publishes S in them and adds them to S.
template <class Config, class State>
class LookBack {
 public:
  FALCHION_DEVICE LookBack(const LinearCta& cta, State& state) : tiles(cta), state(state) {}

  /// Segment 0 keeps its start state in a tile of its own and reads it again from there, because the last segment may
  /// have overwritten the caller's state by then.
  FALCHION_DEVICE void keep_start() { publish(tiles.start()); }
  FALCHION_DEVICE void add_start() { add(tiles.start(), 1); }

  /// Writes S as tile `index`.
  FALCHION_DEVICE void publish(int index) {
    CUTE_UNROLL
    for (int i = 0; i < Tiles::kMessages; ++i)
      tell(tiles.tile(index) + i * 128, make_float4(state.element(4 * i), state.element(4 * i + 1),
                                                    state.element(4 * i + 2), state.element(4 * i + 3)));
  }
  /// S += the sum of all parts before this segment. If this CTA makes a total, it publishes it as soon as its parts are
  /// added up, before it adds the earlier totals.
  FALCHION_DEVICE void add_earlier() {
    add(tiles.first - tiles.alone, tiles.alone);
    if (tiles.makes_total) publish(tiles.total(tiles.before));
    add(tiles.total(0), tiles.before);
  }

  const ColumnTiles<Config> tiles;

 private:
  using Tiles = ColumnTiles<Config>;
  static constexpr int kFours = 8;
  static constexpr int kHalves = Tiles::kMessages / kFours;
  static constexpr int kAtOnce = kHalves == 1 ? 2 : 1;

  /// S += `count` tiles from tile `first` on. It keeps loads of 16 KB in flight, at d 64 of twice that, and repeats
  /// them until all messages are there.
  FALCHION_DEVICE void add(int first, int count) {
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
            state.element(at) += more[j][i].x;
            state.element(at + 1) += more[j][i].y;
            state.element(at + 2) += more[j][i].z;
            state.element(at + 3) += more[j][i].w;
          }
        }
      }
    }
  }
  /// Reads part `half` of kHalves of `count` tiles. Returns whether all its messages had arrived.
  FALCHION_DEVICE bool hear_all(int first, int count, int half, float4 (&more)[kAtOnce][kFours]) const {
    CUTE_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {  // issue all loads before any test, so that their latencies overlap
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
