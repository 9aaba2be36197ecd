// src/gpu/attention_backward/store.cuh: stores gradients of the backward pass straight from the registers of a warp:
// rounded, in f32, or added to the tensor's contents.
#pragma once

#include <cutlass/numeric_conversion.h>

#include "base/host_device.hpp"
#include "gpu/attention_backward/tile.cuh"
#include "gpu/blocks/fragments.cuh"

namespace falchion::gpu {

/// Stores two neighbouring columns of a gradient at `to`: rounded, in f32, or added to its contents.
template <class Element>
FALCHION_DEVICE void store_pair(const AttentionBackwardArgs& a, void* data, std::int64_t at, float x, float y) {
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

/// The destination of the gradient rows of one warp, or of several warps in a row, 16 rows each.
struct GradientRows {
  const View& x;
  std::int64_t head;  // offset of row 0 of the sequence in this head
  int row0, length;   // the first row; rows of the sequence in all
  int column0, d;     // the first column; columns in all
  float scale;
  bool wide;  // rows begin at multiples of 16 bytes and are rounded
};

/// Stores an accumulator (16 kWarps, kColumns) of kWarps warps, in the element order of mma.sync, which wgmma shares.
/// Where counts(row) is false, the row is stored as 0. Rounded numbers are stored 16 bytes at a time: the lanes of a
/// quad exchange the columns of 4 atoms, so that each lane has all 8 columns of one atom.
template <class Element, int kColumns, int kWarps, class Gradient, class Counts>
FALCHION_DEVICE void store_rows(const AttentionBackwardArgs& a, const GradientRows& to, const Gradient& gradient,
                                Counts counts, int thread_of_cta = static_cast<int>(threadIdx.x)) {
  const int thread = thread_of_cta % (32 * kWarps), lane = thread % 4;
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

/// A tile of kRows rows of one head whose sums of grad_q are in the workspace.
template <int kRows>
struct SummedRows {
  int h = 0;
  Rows q;
  int row0 = 0;            // of the sequence
  std::int64_t first = 0;  // number of that row in the workspace
  bool summed = false;     // false: the rows see no key, and there is no sum

  /// Block x stands for (sequence, head, tile). It may have no rows: then row0 is past the end.
  static FALCHION_DEVICE SummedRows of(const AttentionBackwardArgs& a, const BackwardDivisors& by, int x) {
    SummedRows t;
    int m, b = 0;
    by.tiles(x, m, x);
    by.heads(b, t.h, x);
    if (a.cu_q != nullptr)
      m = find_sequence<kRows>(
          a.b, m, [&](int b) { return rows_of_q(a, b).length; }, &b);
    t.q = rows_of_q(a, b);
    t.row0 = m * kRows;
    t.first = BackwardLayout::of(a).first_row(a, b, t.h, t.q.begin) + t.row0;
    const int length_k = rows_of_k(a, b).length;
    const BandMask mask = BandMask::make(length_k, shift_of(a, t.q.length, length_k), a.left, a.right);
    t.summed = t.row0 < t.q.length && !mask.visible(t.row0, min(t.row0 + kRows, t.q.length)).empty();
    return t;
  }
  /// The destination of the tile's rows, from row `row` and from `column` on.
  FALCHION_DEVICE GradientRows to(const AttentionBackwardArgs& a, int row, int column) const {
    const View& x = a.grad_q;
    const std::int64_t head = q.batch * x.stride[0] + q.begin * x.stride[1] + h * x.stride[2];
    return {x, head, row0 + row, q.length, column, static_cast<int>(a.d_qk), a.scale, !a.grads_f32 && a.grads_aligned};
  }
  /// Whether a row of the sequence counts. If not, its gradient is 0.
  FALCHION_DEVICE bool counts(const AttentionBackwardArgs& a, int row) const {
    return !counts_for_nothing(BackwardLayout::of(a).statistic(a, first + row - row0));
  }
};

}  // namespace falchion::gpu
