// src/gpu/attention_forward/store.cuh: the end of a tile on every GPU: rows of O are divided by their sums, and the row
// statistics and the partial results of split keys are stored.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/fragments.cuh"

namespace falchion::gpu {

/// Multiplies each row of O (rows, columns) by its factor.
template <class Output, int kRows>
FALCHION_DEVICE void scale_rows(Output&& O, const float (&factor)[kRows]) {
  CUTE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    CUTE_UNROLL
    for (int c = 0; c < size<1>(O); ++c) O(r, c) *= factor[r];
  }
}
/// The same, but a factor of 0 gives 0 even for NaN and Inf of O (an empty row, or dropout of everything). One of -0 is
/// multiplied like any other.
template <class Output, int kRows>
FALCHION_DEVICE void normalise_rows(Output&& O, const float (&factor)[kRows]) {
  scale_rows(O, factor);
  const auto is_none = [](float x) { return __float_as_uint(x) == 0; };
  bool none = false;
  CUTE_UNROLL
  for (int r = 0; r < kRows; ++r) none |= is_none(factor[r]);
  // This is a loop that runs at most once. ptxas would turn an `if` into a select for each element, 128 per thread at d
  // 256.
  const int runs = __any_sync(~0u, none);
  CUTE_NO_UNROLL
  for (int i = 0; i < runs; ++i) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CUTE_UNROLL
      for (int c = 0; c < size<1>(O); ++c) O(r, c) = is_none(factor[r]) ? 0.f : O(r, c);
    }
  }
}

/// The index of a row in a statistic (b, h, s_q, 1), or (1, h, total_q, 1) where rows are packed.
FALCHION_DEVICE std::int64_t statistic(const View& x, const AttentionArgs& a, const AttentionTile& t, int row) {
  return t.q.batch * x.stride[0] + t.head(row) * x.stride[1] + (t.q.begin + t.query(row)) * x.stride[2];
}
/// The index of a row in the partial results (splits, b, s_q, h_q), or (splits, total_q, h_q) where rows are packed.
/// kPacked: they may be.
template <bool kPacked = false>
FALCHION_DEVICE std::int64_t partial_row(const AttentionArgs& a, const AttentionTile& t, int row) {
  if (kPacked && a.packed) return (t.split * a.total_q + t.q.begin + t.query(row)) * a.h_q + t.head(row);
  return ((t.split * a.b + t.b) * a.s_q + t.query(row)) * a.h_q + t.head(row);
}
/// Stores m and l of one part of a row, where l is relative to e^m in f32, and to 2^m otherwise. They are not stored as
/// one LSE: rounded to f32, it would change the weight of a part by 2e-7, which is visible in f32 outputs.
template <bool kPacked = false>
FALCHION_DEVICE void store_part(const AttentionArgs& a, const AttentionTile& t, int row, float m, float l) {
  reinterpret_cast<float2*>(a.partial_m_l)[partial_row<kPacked>(a, t, row)] = {m, l};
}

/// f32: the destination of a row of O: the output or, where the keys are split, its part. Until then kernels keep the
/// sums of earlier segments of keys there.
FALCHION_DEVICE float* line_of(const AttentionArgs& a, const AttentionTile& t, int row) {
  if (a.splits > 1) return a.partial_o + partial_row(a, t, row) * a.d_v;
  return static_cast<float*>(a.o.data) + t.q.batch * a.o.stride[0] + (t.q.begin + t.query(row)) * a.o.stride[1] +
         t.head(row) * a.o.stride[2];
}

/// Stores O of one part of the keys in f32, directly from the registers, two neighbours at a time where d_v is even.
template <bool kPacked = false, class Output, class Coordinates>
FALCHION_DEVICE void store_partial(const AttentionArgs& a, const AttentionTile& t, const Output& O,
                                   const Coordinates& cO) {
  const int d_v = static_cast<int>(a.d_v);
  CUTE_UNROLL
  for (int r = 0; r < size<0>(O); ++r) {
    const int row = t.row0 + static_cast<int>(get<0>(cO(r, 0)));
    if (row >= t.rows) continue;
    float* to = a.partial_o + partial_row<kPacked>(a, t, row) * a.d_v;
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
