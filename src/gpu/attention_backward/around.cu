// src/gpu/attention_backward/around.cu: the small kernels before and after those of attention's backward pass.
#include "base/host_device.hpp"
#include "gpu/attention_backward/around.hpp"

#include <cutlass/array.h>
#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cute/config.hpp>

#include "gpu/attention_backward/tile.cuh"
#include "gpu/blocks/softmax.cuh"
#include "gpu/blocks/stream_order.cuh"
#include "tiles/attention_backward/workspace.hpp"

namespace falchion::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 16;              // lanes that share a row
constexpr int kTileRows = kPaddedRows;  // of one CTA of the statistics

/// The sum over this lane's columns of grad_o . o.
template <class Element>
FALCHION_DEVICE float part_of_delta(const Element* grad_o, std::int64_t column_stride, const Element* o, int d,
                                    bool wide) {
  constexpr int kChunk = 16 / sizeof(Element);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float sum = 0;
  if (wide) {
    CUTE_NO_UNROLL
    for (int column = lane * kChunk; column < d; column += kLanes * kChunk) {
      const auto x = *reinterpret_cast<const cutlass::AlignedArray<Element, kChunk>*>(grad_o + column);
      const auto y = *reinterpret_cast<const cutlass::AlignedArray<Element, kChunk>*>(o + column);
      CUTE_UNROLL
      for (int i = 0; i < kChunk; ++i) sum = fmaf(static_cast<float>(x[i]), static_cast<float>(y[i]), sum);
    }
  } else {
    CUTE_NO_UNROLL
    for (int column = lane; column < d; column += kLanes)
      sum = fmaf(static_cast<float>(grad_o[column * column_stride]), static_cast<float>(o[column]), sum);
  }
  return sum;
}

/// Writes the statistics of a tile of rows of one head. Where several CTAs will add to grad_q it clears their sums, or
/// the turns. A row with lse = -inf sees no key: it gets the statistic of a masked-out row, like the padding.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    row_statistics(const __grid_constant__ AttentionBackwardArgs a, const __grid_constant__ BackwardDivisors by,
                   float unit, int summed, unsigned* counter) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  int m, h, b = 0;
  int x = static_cast<int>(blockIdx.x);
  by.tiles(x, m, x);
  by.heads(b, h, x);
  // The turns of all rows are cleared block by block, independent of the lengths: with a stale counter a CTA could wait
  // for ever.
  const BackwardLayout layout = BackwardLayout::of(a);
  const std::int64_t block = (std::int64_t{b} * a.h_q + h) * layout.rows + m * kTileRows;
  if (summed > 0 && !a.any_order && m * kTileRows < layout.rows && threadIdx.x < kTileRows / 64 * 2)
    layout.turns(a)[block / 64 * 2 + threadIdx.x] = 0;
  if (counter != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *counter = 0;
  if (a.cu_q != nullptr)
    m = find_sequence<kTileRows>(
        a.b, m, [&](int b) { return rows_of_q(a, b).length; }, &b);
  const Rows q = rows_of_q(a, b);
  if (a.cu_q != nullptr && m * kTileRows >= q.length) return;
  const std::int64_t first = layout.first_row(a, b, h, q.begin) + m * kTileRows;
  if (summed > 0 && a.any_order && a.grad_q.data != nullptr) {
    auto* sums = reinterpret_cast<float4*>(layout.grad_q_sums(a) + first * summed);
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * summed / 4; i += kThreads) sums[i] = float4{};
  }
  const auto put = [&](int r, const RowStatistic& x) {
    layout.lse(a)[first + r] = x.lse;
    layout.delta(a)[first + r] = x.delta;
  };
  const bool wide = a.aligned && a.grad_o.stride[3] == 1;
  CUTE_NO_UNROLL
  for (int r = static_cast<int>(threadIdx.x) / kLanes; r < kTileRows; r += kThreads / kLanes) {
    const int i = m * kTileRows + r;
    if (i >= q.length) {
      if (threadIdx.x % kLanes == 0) put(r, no_row());
      continue;
    }
    const std::int64_t row = q.begin + i;
    const auto at = [&](const View& v) { return q.batch * v.stride[0] + row * v.stride[1] + h * v.stride[2]; };
    const auto statistic = [&](const View& v) { return q.batch * v.stride[0] + h * v.stride[1] + row * v.stride[2]; };
    float delta = part_of_delta(static_cast<const Element*>(a.grad_o.data) + at(a.grad_o), a.grad_o.stride[3],
                                static_cast<const Element*>(a.o.data) + at(a.o), static_cast<int>(a.d_v), wide);
    for (int step = kLanes / 2; step > 0; step /= 2)
      delta += __shfl_xor_sync(threadIdx.x % 32 < kLanes ? 0xFFFFu : 0xFFFF0000u, delta, step);
    if (threadIdx.x % kLanes != 0) continue;
    if (a.grad_lse.data != nullptr) delta -= static_cast<const float*>(a.grad_lse.data)[statistic(a.grad_lse)];
    const float lse = static_cast<const float*>(a.lse.data)[statistic(a.lse)];
    // A sum that underflows may be -0, which marks a masked-out row; + 0 makes it +0.
    put(r, lse == -FALCHION_INF ? no_row() : RowStatistic{lse * unit, delta + 0.f});
  }
}

/// Writes 0 to every row of a gradient (b, s, h, d), a warp for each row of one head.
template <class Element>
__global__ void __launch_bounds__(kThreads)
    clear_rows(View x, std::int64_t s, std::int64_t h, std::int64_t d, std::int64_t rows) {
  wait_for_earlier_kernels();
  const std::int64_t warps = std::int64_t{gridDim.x} * (kThreads / 32);
  for (std::int64_t at = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32; at < rows; at += warps) {
    const std::int64_t head = at % h, row = at / h % s, batch = at / h / s;
    Element* to = static_cast<Element*>(x.data) + batch * x.stride[0] + row * x.stride[1] + head * x.stride[2];
    for (int column = static_cast<int>(threadIdx.x) % 32; column < d; column += 32) to[column] = Element(0);
  }
}

template <class Element>
cudaError_t launch_clear(const View& x, std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d, bool early,
                         void* stream) {
  const std::int64_t rows = b * s * h;
  if (x.data == nullptr || rows == 0) return cudaSuccess;
  constexpr std::int64_t kMostBlocks = 1 << 14;
  const auto blocks = static_cast<unsigned>(std::min(ceil_div(rows, kThreads / 32), kMostBlocks));
  return launch_kernel<clear_rows<Element>>(blocks, kThreads, 0, stream, early, x, s, h, d, rows);
}

template <class Element>
cudaError_t clear_gradients(const AttentionBackwardArgs& a, void* stream) {
  const std::int64_t b = a.packed ? 1 : a.b, s_q = a.packed ? a.total_q : a.s_q, s_k = a.packed ? a.total_k : a.s_k;
  cudaError_t error = launch_clear<Element>(a.grad_q, b, s_q, a.h_q, a.d_qk, a.early, stream);
  if (error == cudaSuccess) error = launch_clear<Element>(a.grad_k, b, s_k, a.h_k, a.d_qk, a.early, stream);
  if (error == cudaSuccess) error = launch_clear<Element>(a.grad_v, b, s_k, a.h_k, a.d_v, a.early, stream);
  return error;
}

/// grad_alibi of one head: of one sequence, or of all of them.
__global__ void __launch_bounds__(32) sum_slopes(const __grid_constant__ AttentionBackwardArgs a, int rows) {
  wait_for_earlier_kernels();
  const int h = static_cast<int>(blockIdx.x % a.h_q), entry = static_cast<int>(blockIdx.x / a.h_q);
  const BackwardLayout layout = BackwardLayout::of(a);
  const int first = a.alibi_summed ? 0 : entry, last = a.alibi_summed ? static_cast<int>(a.b) : entry + 1;
  float sum = 0;
  std::int64_t before = 0;  // tiles of the sequences before this one
  for (int b = 0; b < last; ++b) {
    // Packed sequences that overlap (invalid lengths) have more tiles than there are sums.
    const std::int64_t room = a.row_tiles - (a.packed ? before : 0);
    const int tiles = static_cast<int>(min(std::int64_t{(rows_of_q(a, b).length + rows - 1) / rows}, room));
    const float* from = layout.slope_sums(a, b, h) + (a.packed ? before : 0);
    for (int i = static_cast<int>(threadIdx.x); b >= first && i < tiles; i += 32) sum += from[i];
    before += tiles;
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x != 0) return;
  float* to = static_cast<float*>(a.grad_alibi.data) + entry * a.grad_alibi.stride[0] + h * a.grad_alibi.stride[2];
  *to = a.accumulate ? *to + sum : sum;
}

constexpr int kSinkWarps = 32;

/// grad_sinks of one head, of one sequence or of all of them: -sum exp(sink - lse) D over its rows, always in the same
/// order. Few sequences have several warps each, many share one.
__global__ void __launch_bounds__(32 * kSinkWarps) sum_sinks(const __grid_constant__ AttentionBackwardArgs a) {
  __shared__ float of_warps[kSinkWarps];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int h = static_cast<int>(blockIdx.x % a.h_q), entry = static_cast<int>(blockIdx.x / a.h_q);
  const int first = a.sinks_summed ? 0 : entry, count = a.sinks_summed ? static_cast<int>(a.b) : 1;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int shares = 1;  // warps of a sequence
  while (2 * shares * count <= kSinkWarps && shares < kSinkWarps) shares *= 2;
  const BackwardLayout layout = BackwardLayout::of(a);
  float sum = 0;
  for (int b = first + warp / shares; b < first + count; b += kSinkWarps / shares) {
    const Rows q = rows_of_q(a, b);
    const float sink = sink_of(a, b, h);
    const float* delta = layout.delta(a) + layout.first_row(a, b, h, q.begin);
    const float* lse = static_cast<const float*>(a.lse.data) + q.batch * a.lse.stride[0] + h * a.lse.stride[1] +
                       q.begin * a.lse.stride[2];
#pragma unroll 4
    for (int i = warp % shares * 32 + lane; i < q.length; i += shares * 32) {
      const RowStatistic row{lse[i * a.lse.stride[2]], delta[i]};
      sum -= counts_for_nothing(row) ? 0.f : ::expf(sink - row.lse) * row.delta;
    }
  }
  const auto over_warp = [](float x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
  };
  sum = over_warp(sum);
  if (lane == 0) of_warps[warp] = sum;
  __syncthreads();
  if (warp != 0) return;
  sum = over_warp(of_warps[lane]);
  if (lane != 0) return;
  float* to = static_cast<float*>(a.grad_sinks.data) + entry * a.grad_sinks.stride[0] + h * a.grad_sinks.stride[2];
  *to = a.accumulate ? *to + sum : sum;
}

cudaError_t launch_sink_sums(const AttentionBackwardArgs& a, void* stream) {
  const std::int64_t blocks = (a.sinks_summed ? 1 : a.b) * a.h_q;
  if (a.grad_sinks.data == nullptr || blocks == 0) return cudaSuccess;
  return launch_kernel<sum_sinks>(static_cast<unsigned>(blocks), 32 * kSinkWarps, 0, stream, a.early, a);
}

template <class Element>
cudaError_t launch_row_statistics(const AttentionBackwardArgs& a, float unit, int summed, unsigned* counter,
                                  void* stream) {
  AttentionBackwardArgs tiled = a;
  tiled.row_tiles = backward_tiles(a, a.s_q, a.total_q, kTileRows);
  const std::int64_t blocks = backward_blocks(tiled, Owner::rows, 1);
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (blocks == 0 && counter != nullptr)
    return cudaMemsetAsync(counter, 0, sizeof(*counter), static_cast<cudaStream_t>(stream));
  if (blocks == 0) return cudaSuccess;
  return launch_kernel<row_statistics<Element>>(static_cast<unsigned>(blocks), kThreads, 0, stream, a.early, tiled,
                                                BackwardDivisors(tiled, Owner::rows, 1), unit, summed, counter);
}

}  // namespace

template <class Element>
int launch_before_backward(const AttentionBackwardArgs& a, float unit, int summed, unsigned* counter, void* stream) {
  if (a.zero_unused) {
    const cudaError_t error = a.grads_f32 ? clear_gradients<float>(a, stream) : clear_gradients<Element>(a, stream);
    if (error != cudaSuccess) return error;
  }
  const cudaError_t error = launch_row_statistics<Element>(a, unit, summed, counter, stream);
  return error == cudaSuccess ? launch_sink_sums(a, stream) : error;
}
template int launch_before_backward<float>(const AttentionBackwardArgs&, float, int, unsigned*, void*);
template int launch_before_backward<cutlass::half_t>(const AttentionBackwardArgs&, float, int, unsigned*, void*);
template int launch_before_backward<cutlass::bfloat16_t>(const AttentionBackwardArgs&, float, int, unsigned*, void*);

int launch_slope_sums(const AttentionBackwardArgs& a, int rows, void* stream) {
  const std::int64_t blocks = (a.alibi_summed ? 1 : a.b) * a.h_q;
  if (a.grad_alibi.data == nullptr || blocks == 0) return cudaSuccess;
  return launch_kernel<sum_slopes>(static_cast<unsigned>(blocks), 32, 0, stream, a.early, a, rows);
}

}  // namespace falchion::gpu
