// src/sm90/attention_backward_store.cuh: the end of Hopper's backward pass. grad_k and grad_v are stored straight from
// the registers, and a small kernel makes grad_q of its sums.
#pragma once

#include <cutlass/numeric_conversion.h>

#include "blocks/sm90_wgmma.cuh"
#include "blocks/stream_order.cuh"
#include "sm90/attention_backward_config.hpp"

namespace falchion::sm90 {

using namespace gpu;

/// Two neighbouring columns of a gradient, at `to`: rounded, in f32 or added to what is there.
template <class Element>
__device__ __forceinline__ void store_pair(const AttentionBackwardArgs& a, void* data, std::int64_t at, float x,
                                           float y) {
  if (!a.grads_f32) {
    Element* to = static_cast<Element*>(data) + at;
    to[0] = Element(x);
    to[1] = Element(y);
    return;
  }
  float* to = static_cast<float*>(data) + at;
  to[0] = a.accumulate ? to[0] + x : x;
  to[1] = a.accumulate ? to[1] + y : y;
}

/// Where a warpgroup's 64 rows of a gradient go.
struct GradientRows {
  const View& x;
  std::int64_t head;  // offset of row 0 of the sequence in this head
  int row0, length;   // the first row; rows of the sequence in all
  int column0, d;     // the first column; columns in all
  float scale;
  bool wide;  // rows begin at multiples of 16 bytes and are rounded
};

/// Stores an accumulator (64, kColumns) of a warpgroup; where counts(row) is false, the row is 0, whatever was
/// computed. Rounded numbers go out 16 bytes at a time: of 4 atoms the lanes of a quad exchange their columns, so that
/// each lane has all 8 columns of one atom.
template <class Element, int kColumns, class Gradient, class Counts>
__device__ __forceinline__ void store_rows(const AttentionBackwardArgs& a, const GradientRows& to,
                                           const Gradient& gradient, Counts counts) {
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 4;
  CUTE_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int row = to.row0 + thread / 32 * 16 + thread % 32 / 4 + 8 * r;
    const bool inside = row < to.length;
    const float scale = to.scale;
    const bool there = inside && counts(row);
    const std::int64_t at = to.head + row * to.x.stride[1];
    const auto value = [&](int e) { return there ? gradient(e) * scale : 0.f; };
    CUTE_UNROLL
    for (int n = 0; n < kColumns / 8; n += 4) {
      if (to.wide) {
        std::uint32_t words[4];
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int e = 4 * (n + i) + 2 * r;
          const auto pair = cutlass::NumericArrayConverter<Element, float, 2>::convert(
              cutlass::Array<float, 2>{value(e), value(e + 1)});
          words[i] = reinterpret_cast<const std::uint32_t&>(pair);
        }
        transpose_quad(words);
        const int column = to.column0 + 8 * (n + lane);
        if (inside && column < to.d)
          *reinterpret_cast<uint4*>(static_cast<Element*>(to.x.data) + at + column) = {words[0], words[1], words[2],
                                                                                       words[3]};
      } else {
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int e = 4 * (n + i) + 2 * r, column = to.column0 + 8 * (n + i) + 2 * lane;
          if (inside && column < to.d) store_pair<Element>(a, to.x.data, at + column, value(e), value(e + 1));
        }
      }
    }
  }
}

/// grad_q of one tile of rows of one head from the sums, which lie in the order of the registers of those who made
/// them. A row that counts for nothing gets 0, and so does a tile that sees no key, for which nobody has made a sum.
template <class Config>
__global__ void __launch_bounds__(128 * Config::kConsumers)
    finish_grad_q(const __grid_constant__ AttentionBackwardArgs a, const __grid_constant__ BackwardDivisors by) {
  using Element = typename Config::Element;
  let_next_kernel_start();
  wait_for_earlier_kernels();
  int m, h, b = 0;
  int x = static_cast<int>(blockIdx.x);
  by.tiles(x, m, x);
  by.heads(b, h, x);
  if (a.cu_q != nullptr)
    m = find_sequence<Config::kRows>(
        a.b, m, [&](int b) { return Rows::of_q(a, b).length; }, &b);
  const Rows q = Rows::of_q(a, b);
  if (m * Config::kRows >= q.length) return;
  const BackwardLayout layout = BackwardLayout::of(a);
  const std::int64_t first = layout.first_row(a, b, h, q.begin) + m * Config::kRows;
  const View& x_q = a.grad_q;
  const int length_k = Rows::of_k(a, b).length;
  const BandMask mask = BandMask::make(length_k, a.top_left ? 0 : length_k - q.length, a.left, a.right);
  const bool summed = !mask.visible(m * Config::kRows, min((m + 1) * Config::kRows, q.length)).empty();
  GradientRows to{x_q, q.batch * x_q.stride[0] + q.begin * x_q.stride[1] + h * x_q.stride[2]};
  to.length = q.length;
  to.d = static_cast<int>(a.d_qk);
  to.scale = a.scale;
  to.wide = !a.grads_f32 && a.grads_aligned;
  const int part = static_cast<int>(threadIdx.x) / 128;
  const auto* sums =
      reinterpret_cast<const float4*>(layout.grad_q_sums(a) + first * Config::kD + part * Config::kSizeDq) +
      threadIdx.x % 128;
  float sum[Config::kSizeDq / 128];
  CUTE_UNROLL
  for (int n = 0; n < Config::kColumnsDq / 8; ++n)
    reinterpret_cast<float4*>(sum)[n] = summed ? sums[n * 128] : float4{};
  to.row0 = m * Config::kRows + (Config::kByColumns ? 0 : 64 * part);
  to.column0 = Config::kByColumns ? part * Config::kColumnsDq : 0;
  const auto counts = [&](int row) {
    return !counts_for_nothing(layout.statistic(a, first + row - m * Config::kRows));
  };
  store_rows<Element, Config::kColumnsDq>(
      a, to, [&](int e) { return sum[e]; }, counts);
}

}  // namespace falchion::sm90
