// src/sm80/attention_backward/load.cuh: the tiles of a CTA of the backward pass in shared memory, and their loads.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_backward/tile.cuh"
#include "gpu/blocks/copy.cuh"
#include "gpu/blocks/softmax.cuh"
#include "tiles/attention_backward/workspace.hpp"

namespace falchion::sm80 {

using namespace gpu;

/// The shared memory of a CTA. There are two tiles of each side: `score` is q or k, the factor of S, and `value` is
/// grad_o or v, the factor of dP.
template <class Math>
struct BackwardShared {
  using Element = typename Math::Element;
  unsigned char* base;

  FALCHION_DEVICE Element* own_score() const { return reinterpret_cast<Element*>(base); }
  FALCHION_DEVICE Element* own_value() const { return own_score() + Math::kSizeOwn; }
  FALCHION_DEVICE Element* visited_score(int step) const {
    return own_score() + 2 * Math::kSizeOwn + step % Math::kStages * 2 * Math::kSizeVisited;
  }
  FALCHION_DEVICE Element* visited_value(int step) const { return visited_score(step) + Math::kSizeVisited; }
  /// Space for exchanges between threads.
  FALCHION_DEVICE Element* exchange() const {
    return own_score() + 2 * Math::kSizeOwn + 2 * Math::kStages * Math::kSizeVisited;
  }
  FALCHION_DEVICE RowStatistic* own_statistics() const {
    return reinterpret_cast<RowStatistic*>(exchange() + Math::kSizeP);
  }
  FALCHION_DEVICE RowStatistic* visited_statistics(int step) const {
    return own_statistics() + Math::kOwn + step % 2 * Math::kVisited;
  }
};

/// One side (rows or keys) of a head of a sequence, from which tiles are loaded.
template <class Element>
struct Side {
  const Element *score, *value;  // row 0 of the sequence, of q and grad_o or of k and v
  std::int64_t score_stride, value_stride, value_column_stride;
  int length, score_columns, value_columns;

  static FALCHION_DEVICE Side of_rows(const AttentionBackwardArgs& a, const Rows& q, int h) {
    return {at<Element>(a.q, q, h),   at<Element>(a.grad_o, q, h), a.q.stride[1],
            a.grad_o.stride[1],       a.grad_o.stride[3],          q.length,
            static_cast<int>(a.d_qk), static_cast<int>(a.d_v)};
  }
  static FALCHION_DEVICE Side of_keys(const AttentionBackwardArgs& a, const Rows& k, int h_kv) {
    return {at<Element>(a.k, k, h_kv), at<Element>(a.v, k, h_kv), a.k.stride[1], a.v.stride[1], 1, k.length,
            static_cast<int>(a.d_qk),  static_cast<int>(a.d_v)};
  }

 private:
  template <class T>
  static FALCHION_DEVICE const T* at(const View& x, const Rows& rows, int h) {
    return static_cast<const T*>(x.data) + rows.batch * x.stride[0] + rows.begin * x.stride[1] + h * x.stride[2];
  }
};

/// Loads kRows rows from `row0` on; rows outside of [0, length) and columns from `columns` on become 0. With `fast` the
/// copies are cp.async, which the caller commits and waits for.
template <class Math, int kRows>
FALCHION_DEVICE void load_tile(const typename Math::Element* from, std::int64_t stride, std::int64_t column_stride,
                               int row0, int length, int columns, bool fast, typename Math::Element* to) {
  constexpr int kChunks = Math::kD / Math::kChunk, kEach = kRows * kChunks / Math::kThreads;
  static_assert(kRows * kChunks % Math::kThreads == 0);
  CUTE_UNROLL
  for (int n = 0; n < kEach; ++n) {
    const int chunk = static_cast<int>(threadIdx.x) + n * Math::kThreads;
    const int row = chunk / kChunks, column = chunk % kChunks * Math::kChunk;
    const bool inside = row0 + row >= 0 && row0 + row < length;
    const auto* at = from + (row0 + row) * stride + column * column_stride;
    auto* into = to + Math::template at<kRows>(row, column);
    if (fast) {
      copy_async(at, into, inside && column < columns);
    } else {
      alignas(16) typename Math::Element values[Math::kChunk];
      CUTE_UNROLL
      for (int i = 0; i < Math::kChunk; ++i)
        values[i] = inside && column + i < columns ? at[i * column_stride] : typename Math::Element(0);
      *reinterpret_cast<uint4*>(into) = *reinterpret_cast<const uint4*>(values);
    }
  }
}

/// Loads both tiles of a side. kAligned: rows begin at multiples of 16 bytes, and the last axis is contiguous.
template <class Math, int kRows, bool kAligned>
FALCHION_DEVICE void load_side(const AttentionBackwardArgs& a, const Side<typename Math::Element>& side, int row0,
                               typename Math::Element* score, typename Math::Element* value) {
  const bool fast = kAligned || a.aligned;
  load_tile<Math, kRows>(side.score, side.score_stride, 1, row0, side.length, side.score_columns, fast, score);
  load_tile<Math, kRows>(side.value, side.value_stride, side.value_column_stride, row0, side.length, side.value_columns,
                         kAligned || (fast && side.value_column_stride == 1), value);
}

/// The statistic of query row `row` of the head whose first row has number `head` in the workspace. A row past the end
/// gets that of a masked-out row.
FALCHION_DEVICE RowStatistic statistic_of(const AttentionBackwardArgs& a, const BackwardLayout& layout,
                                          std::int64_t head, int row, int length) {
  return row < 0 || row >= length ? no_row() : layout.statistic(a, head + row);
}

/// Sets rows of q and grad_o for which dead(row) is true to 0: they may hold NaN, and 0 times NaN is NaN.
template <class Math, int kRows, class Dead>
FALCHION_DEVICE void clear_rows(Dead dead, typename Math::Element* score, typename Math::Element* value) {
  constexpr int kChunks = Math::kD / Math::kChunk;
  CUTE_NO_UNROLL
  for (int chunk = static_cast<int>(threadIdx.x); chunk < kRows * kChunks; chunk += Math::kThreads) {
    const int row = chunk / kChunks;
    if (!dead(row)) continue;
    const int offset = Math::template at<kRows>(row, chunk % kChunks * Math::kChunk);
    *reinterpret_cast<uint4*>(score + offset) = uint4{};
    *reinterpret_cast<uint4*>(value + offset) = uint4{};
  }
}
/// The same for masked-out rows.
template <class Math, int kRows>
FALCHION_DEVICE void clear_dead_rows(const RowStatistic* statistics, typename Math::Element* score,
                                     typename Math::Element* value) {
  clear_rows<Math, kRows>([&](int row) { return counts_for_nothing(statistics[row]); }, score, value);
}

}  // namespace falchion::sm80
