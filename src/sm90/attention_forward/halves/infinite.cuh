// src/sm90/attention_forward/halves/infinite.cuh: numbers that no f16 part can hold. Rows of q and k with an Inf or a
// number of at least 2^64, and rows of v with an Inf or NaN, are marked (split.cuh). Where a tile has a marked row, a
// warp computes its scores, or its share of O, from the f32 operands. That is slow, but such inputs are rare.
#pragma once

#include <algorithm>

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/fragments.cuh"
#include "sm90/attention_forward/halves/split.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// The elements of a tile of S that a thread holds. Element i of a row is key 8 (i / 2) + 2 (lane % 4) + i % 2.
struct FragmentPlace {
  int row;  // of the tile; the thread's second row is 8 below it
  FALCHION_DEVICE explicit FragmentPlace(int warpgroup)
      : row(64 * warpgroup + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4) {}
  static FALCHION_DEVICE int key(int i) { return i / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2; }
};

/// Selects one of up to 32 elements inside an unrolled loop. If the loop's index were compared with the selected one,
/// the compiler would index the array by the latter, and an array with a dynamic index does not stay in registers.
struct OneOf {
  unsigned bit;
  FALCHION_DEVICE explicit OneOf(int chosen) : bit(1U << chosen) {}
  FALCHION_DEVICE bool is(int i) const { return (bit >> i & 1) != 0; }
};

/// The address of a row of q, k or v.
FALCHION_DEVICE const float* line_of(const View& x, const Rows& rows, int row, int h) {
  return static_cast<const float*>(x.data) + rows.batch * x.stride[0] + (rows.begin + row) * x.stride[1] +
         h * x.stride[2];
}

/// Computes the scores of marked rows and of marked keys again, in f32. key0 is the first key of the tile. mark(key) is
/// true if the row of K of that key is marked; row_factor[r] carries the marks of this thread's rows.
template <class Mark, class Scores>
FALCHION_DEVICE void compute_marked_scores(const AttentionArgs& a, const AttentionTile& t, int h_kv, FragmentPlace at,
                                           int key0, const float (&row_factor)[2], Mark mark, Scores& S) {
  constexpr int kCount = 2 * decltype(size<1>(S))::value;
  CUTE_NO_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const int row = t.row0 + at.row + 8 * (i % 2), key = FragmentPlace::key(i / 2);
    if (row >= t.rows || key0 + key >= t.k.length) continue;
    if (!is_incomplete(i % 2 == 0 ? row_factor[0] : row_factor[1]) && !mark(key)) continue;
    const float* const q = line_of(a.q, t.q, t.query(row), t.head(row));
    const float* const k = line_of(a.k, t.k, key0 + key, h_kv);
    float sum = 0;
    CUTE_NO_UNROLL
    for (int c = 0; c < a.d_qk; ++c) sum = fmaf(q[c], k[c], sum);
    const OneOf here(i);
    CUTE_UNROLL
    for (int j = 0; j < kCount; ++j) S(j % 2, j / 2) = here.is(j) ? sum : S(j % 2, j / 2);
  }
}

/// Adds P V for the NaN and Inf of V. P is in the registers of S. mark(key) is true if the row of V of that key is
/// marked; all lanes of a warp get the same answer.
template <class Scores, class Output, class Mark>
FALCHION_DEVICE void add_marked_values(const AttentionArgs& a, const AttentionTile& t, int h_kv, int key0, Mark mark,
                                       const Scores& S, Output&& O) {
  constexpr int kKeys = 4 * decltype(size<1>(S))::value;
  constexpr int kTurn = std::min(32, int{decltype(size<1>(O))::value});
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int count = min(kKeys, t.k.length - key0);
  CUTE_NO_UNROLL
  for (int key = 0; key < count; ++key) {
    if (!mark(key)) continue;
    float p[2] = {0, 0};
    const OneOf own(key / 8 * 2 + key % 2);
    CUTE_UNROLL
    for (int i = 0; i < size<1>(S); ++i) {
      p[0] = own.is(i) ? S(0, i) : p[0];
      p[1] = own.is(i) ? S(1, i) : p[1];
    }
    const int from = lane / 4 * 4 + key % 8 / 2;  // the lane of this quad that has the key
    p[0] = __shfl_sync(~0U, p[0], from);
    p[1] = __shfl_sync(~0U, p[1], from);
    const float* const v = line_of(a.v, t.k, key0 + key, h_kv);
    // A loop over the columns, not unrolled: unrolled, ptxas runs out of registers at d 256.
    CUTE_NO_UNROLL
    for (int i = 0; i < kTurn; ++i) {
      const OneOf here(i);
      CUTE_UNROLL
      for (int first = 0; first < size<1>(O); first += kTurn) {
        const int column = FragmentPlace::key(first + i);
        const float x = column < a.d_v ? v[column] : 0.F;
        const float left_out = isfinite(x) ? 0.F : x;
        CUTE_UNROLL
        for (int j = 0; j < 2 * kTurn; ++j)
          O(j % 2, first + j / 2) = fmaf(p[j % 2], here.is(j / 2) ? left_out : 0.F, O(j % 2, first + j / 2));
      }
    }
  }
}

}  // namespace falchion::sm90
