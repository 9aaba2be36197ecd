// src/gpu/attention_store.cuh: what ends a tile on every GPU: rows of O are divided by their sums, statistics and parts
// of split keys have their places.
#pragma once

#include "blocks/gpu_fragments.cuh"
#include "gpu/attention_tile.cuh"

namespace falchion::gpu {

/// O (rows, columns) *= factor, row by row.
template <class Output, int kRows>
__device__ __forceinline__ void scale_rows(Output&& O, const float (&factor)[kRows]) {
  CUTE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CUTE_UNROLL
    for (int c = 0; c < size<1>(O); ++c) O(r, c) *= factor[r];
  }
}
/// The same, and a factor of 0 gives 0 whatever O holds (an empty row, dropout of all).
template <class Output, int kRows>
__device__ __forceinline__ void normalise_rows(Output&& O, const float (&factor)[kRows]) {
  scale_rows(O, factor);
  bool none = false;
  CUTE_UNROLL
  for (int r = 0; r < kRows; ++r) none |= factor[r] == 0;
  // A loop that runs once at most: of an if ptxas would make a select for each element, 128 a thread at d 256.
  const int runs = __any_sync(~0u, none);
  CUTE_NO_UNROLL
  for (int i = 0; i < runs; ++i) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CUTE_UNROLL
      for (int c = 0; c < size<1>(O); ++c) O(r, c) = factor[r] == 0 ? 0.f : O(r, c);
    }
  }
}

/// An index into (b, h, s_q, 1), packed (1, h, total_q, 1).
__device__ __forceinline__ std::int64_t statistic(const View& x, const AttentionArgs& a, const AttentionTile& t,
                                                  int row) {
  return t.q.batch * x.stride[0] + t.head(row) * x.stride[1] + (t.q.begin + t.query(row)) * x.stride[2];
}
/// A row of partial results: (splits, b, s_q, h_q).
__device__ __forceinline__ std::int64_t partial_row(const AttentionArgs& a, const AttentionTile& t, int row) {
  return ((t.split * a.b + t.b) * a.s_q + t.query(row)) * a.h_q + t.head(row);
}
/// Its softmax: l was summed relative to e^m in f32, else to 2^m. Not their LSE: rounded to f32 that would cost the
/// weight of a part 2e-7, which f32 outputs feel.
__device__ __forceinline__ void store_part(const AttentionArgs& a, const AttentionTile& t, int row, float m, float l) {
  reinterpret_cast<float2*>(a.partial_m_l)[partial_row(a, t, row)] = {m, l};
}

/// One part of the keys: f32, straight from the registers, two neighbours at once where d_v is even.
template <class Output, class Coordinates>
__device__ __forceinline__ void store_partial(const AttentionArgs& a, const AttentionTile& t, const Output& O,
                                              const Coordinates& cO) {
  const int d_v = static_cast<int>(a.d_v);
  CUTE_UNROLL
  for (int r = 0; r < size<0>(O); ++r) {
    const int row = t.row0 + static_cast<int>(get<0>(cO(r, 0)));
    if (row >= t.rows) continue;
    float* to = a.partial_o + partial_row(a, t, row) * a.d_v;
    CUTE_UNROLL
    for (int c = 0; c < size<1>(O); c += 2) {
      const int column = static_cast<int>(get<1>(cO(r, c)));
      if (d_v % 2 == 0 && column < d_v) {
        *reinterpret_cast<float2*>(to + column) = {O(r, c), O(r, c + 1)};
      } else {
        if (column < d_v) to[column] = O(r, c);
        if (column + 1 < d_v) to[column + 1] = O(r, c + 1);
      }
    }
  }
}

}  // namespace falchion::gpu
