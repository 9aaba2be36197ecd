// src/sm80/attention_backward/bias.cuh: grad_bias, the gradient of the scores G, in a separate kernel. A CTA owns a
// tile of grad_bias and computes G for all pairs of a query and a key that share its elements, one tile after another.
// So it needs no sums between CTAs and no workspace.
#pragma once

#include "base/host_device.hpp"
#include "sm80/attention_backward/kernel.cuh"
#include "tiles/attention_backward/sm80.hpp"

namespace falchion::sm80 {

using namespace gpu;

/// The tiles of grad_bias along b, h, s_q and s_k. An axis that is summed has one tile.
struct BiasGrid {
  int tiles[4];
  int all_tiles[4];  // tiles to visit where the axis is summed

  static BiasGrid of(const AttentionBackwardArgs& a, int rows, int keys) {
    const std::int64_t all[4] = {a.b, a.h_q, ceil_div(a.s_q, rows), ceil_div(a.s_k, keys)};
    BiasGrid grid{};
    for (int axis = 0; axis < 4; ++axis) {
      grid.all_tiles[axis] = static_cast<int>(all[axis]);
      grid.tiles[axis] = a.summed[axis] ? 1 : grid.all_tiles[axis];
    }
    return grid;
  }
  std::int64_t blocks() const { return std::int64_t{tiles[0]} * tiles[1] * tiles[2] * tiles[3]; }
  /// Tiles to visit along an axis for tile `own` of it.
  FALCHION_DEVICE int first(const AttentionBackwardArgs& a, int axis, int own) const {
    return a.summed[axis] ? 0 : own;
  }
  FALCHION_DEVICE int end(const AttentionBackwardArgs& a, int axis, int own) const {
    return a.summed[axis] ? all_tiles[axis] : own + 1;
  }
};

/// The tile of a CTA, and its sums of G.
template <class Math>
struct BiasTile {
  using Element = typename Math::Element;
  const AttentionBackwardArgs& a;
  BackwardShared<Math> shared;
  GeneralPairs<Math> pairs;
  typename Math::Scores sum;

  /// Adds G of one pair of tiles: query rows from q0 on, columns of the bias from column0 on. All threads take part.
  FALCHION_DEVICE void add(int b, int h, int q0, int column0) {
    const Rows q = rows_of_q(a, b), k = rows_of_k(a, b);
    const BandMask mask = BandMask::make(k.length, shift_of(a, q.length, k.length), a.left, a.right);
    const int k0 = column0 - k.first;
    if (q0 >= q.length || k0 >= k.length) return;
    const Range seen = mask.visible(q0, min(q0 + Math::kOwn, q.length));
    if (seen.begin >= k0 + Math::kVisited || seen.end <= k0) return;
    __syncthreads();  // no thread still reads the previous tiles
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < Math::kOwn) {
      const BackwardLayout layout = BackwardLayout::of(a);
      shared.own_statistics()[thread] =
          statistic_of(a, layout, layout.first_row(a, b, h, q.begin), q0 + thread, q.length);
    }
    load_side<Math, Math::kOwn, false>(a, Side<Element>::of_rows(a, q, h), q0, shared.own_score(), shared.own_value());
    load_side<Math, Math::kVisited, false>(a, Side<Element>::of_keys(a, k, h / static_cast<int>(a.h_q / a.h_k)), k0,
                                           shared.visited_score(0), shared.visited_value(0));
    cp_async_fence();
    cp_async_wait<0>();
    __syncthreads();
    clear_dead_rows<Math, Math::kOwn>(shared.own_statistics(), shared.own_score(), shared.own_value());
    __syncthreads();
    typename Math::Scores s, dp;
    Math::multiply(s, shared.own_score(), shared.visited_score(0));
    Math::multiply(dp, shared.own_value(), shared.visited_value(0));
    pairs.template apply_for_bias<Owner::rows>({b, h, q0, k0, shared.own_statistics(), k, mask, false}, s, dp);
    CUTE_UNROLL
    for (int r = 0; r < Math::Scores::kRows; ++r) {
      CUTE_UNROLL
      for (int c = 0; c < Math::Scores::kColumns; ++c) sum(r, c) += dp(r, c);
    }
  }

  /// Stores the tile, summed over its rows and its columns if those axes are summed.
  FALCHION_DEVICE void store(int b, int h, int q0, int column0) {
    constexpr int kStride = Math::kVisited + kPadding;
    float* tile = reinterpret_cast<float*>(shared.base);
    __syncthreads();
    CUTE_UNROLL
    for (int r = 0; r < Math::Scores::kRows; ++r) {
      CUTE_UNROLL
      for (int c = 0; c < Math::Scores::kColumns; ++c)
        tile[Math::Scores::row(r) * kStride + Math::Scores::column(c)] = sum(r, c);
    }
    __syncthreads();
    const int rows = a.summed[2] ? 1 : Math::kOwn, columns = a.summed[3] ? 1 : Math::kVisited;
    for (int at = static_cast<int>(threadIdx.x); at < rows * columns; at += Math::kThreads) {
      const int row = at / columns, column = at % columns;
      if ((!a.summed[2] && q0 + row >= a.s_q) || (!a.summed[3] && column0 + column >= a.s_k)) continue;
      float value = 0;
      for (int r = a.summed[2] ? 0 : row; r < (a.summed[2] ? Math::kOwn : row + 1); ++r) {
        for (int c = a.summed[3] ? 0 : column; c < (a.summed[3] ? Math::kVisited : column + 1); ++c)
          value += tile[r * kStride + c];
      }
      const View& x = a.grad_bias;
      float* to = static_cast<float*>(x.data) + b * x.stride[0] + h * x.stride[1] + (q0 + row) * x.stride[2] +
                  (column0 + column) * x.stride[3];
      *to = a.accumulate ? *to + value : value;
    }
  }
};

template <class Math>
__global__ void __launch_bounds__(Math::kThreads, Math::kCtas)
    attention_backward_bias(const __grid_constant__ AttentionBackwardArgs a, const __grid_constant__ BiasGrid grid) {
  extern __shared__ __align__(128) unsigned char memory[];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  BiasTile<Math> tile{a, {memory}, GeneralPairs<Math>(a), {}};
  CUTE_UNROLL
  for (int r = 0; r < Math::Scores::kRows; ++r) {
    CUTE_UNROLL
    for (int c = 0; c < Math::Scores::kColumns; ++c) tile.sum(r, c) = 0;
  }
  int own[4], x = static_cast<int>(blockIdx.x);
  for (int axis = 3; axis >= 0; --axis) {
    own[axis] = x % grid.tiles[axis];
    x /= grid.tiles[axis];
  }
  for (int b = grid.first(a, 0, own[0]); b < grid.end(a, 0, own[0]); ++b)
    for (int h = grid.first(a, 1, own[1]); h < grid.end(a, 1, own[1]); ++h)
      for (int m = grid.first(a, 2, own[2]); m < grid.end(a, 2, own[2]); ++m)
        for (int n = grid.first(a, 3, own[3]); n < grid.end(a, 3, own[3]); ++n)
          tile.add(b, h, m * Math::kOwn, n * Math::kVisited);
  tile.store(own[0], own[1], own[2] * Math::kOwn, own[3] * Math::kVisited);
}

/// Enqueues the kernel if grad_bias is requested, and returns a cudaError_t.
template <class Math>
int launch_attention_backward_bias(const AttentionBackwardArgs& a, void* stream) {
  if (a.grad_bias.data == nullptr) return cudaSuccess;
  const BiasGrid grid = BiasGrid::of(a, Math::kOwn, Math::kVisited);
  if (grid.blocks() == 0) return cudaSuccess;
  if (grid.blocks() > INT32_MAX) return cudaErrorInvalidConfiguration;
  return launch_kernel<attention_backward_bias<Math>>(static_cast<unsigned>(grid.blocks()), Math::kThreads,
                                                      Math::kSharedBytes, stream, a.early, a, grid);
}

}  // namespace falchion::sm80
