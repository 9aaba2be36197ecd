// src/sm90/attention_halves_store.cuh: the end of a tile of softmax attention in f32 on Hopper.
#pragma once

#include "blocks/sm90_softmax_f32.cuh"
#include "gpu/attention_store.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// Stores O in f32 straight from the registers: two neighbours at a time, so that a quad of lanes writes 32 bytes.
template <class Output, class Coordinates>
__device__ __forceinline__ void store_o_f32(const AttentionArgs& a, const AttentionTile& t, const Output& O,
                                            const Coordinates& cO) {
  float* o = static_cast<float*>(a.o.data) + t.q.batch * a.o.stride[0] + t.q.begin * a.o.stride[1];
  const int d_v = static_cast<int>(a.d_v);
  CUTE_UNROLL
  for (int r = 0; r < size<0>(O); ++r) {
    const int row = t.row0 + static_cast<int>(get<0>(cO(r, 0)));
    if (row >= t.rows) continue;
    float* to = o + t.query(row) * a.o.stride[1] + t.head(row) * a.o.stride[2];
    CUTE_UNROLL
    for (int c = 0; c < size<1>(O); c += 2) {
      const int column = static_cast<int>(get<1>(cO(r, c)));
      if (a.aligned) {  // d_v is a multiple of 4 then
        if (column < d_v) *reinterpret_cast<float2*>(to + column) = {O(r, c), O(r, c + 1)};
      } else {
        if (column < d_v) to[column] = O(r, c);
        if (column + 1 < d_v) to[column + 1] = O(r, c + 1);
      }
    }
  }
}

/// O and l over many keys: a running sum goes over the keys of one segment only, because each addition rounds at its
/// size. What the segments before have given lies where O will be stored, unnormalised. A thread writes and reads its
/// own elements there.
struct KeptSums {
  static constexpr int kRows = SoftmaxF32::kSize;
  float m[kRows], l[kRows];  // what l and O were relative to when they were kept; l of this lane
  bool any;

  /// The end of a segment: adds O and l to what lies aside. They begin again with 0. c: how much one unit of m is in the
  /// exponent of 2.
  template <class Output, class Coordinates>
  __device__ __forceinline__ void put_aside(const AttentionArgs& a, const AttentionTile& t, float c,
                                            SoftmaxF32& softmax, Output&& O, const Coordinates& cO) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float shrink = any ? shrink_to(softmax.m[r], r, c) : 0.f;
      m[r] = softmax.m[r];
      l[r] = any ? fmaf(l[r], shrink, softmax.l[r]) : softmax.l[r];
      softmax.l[r] = 0;
      for_each_pair(a, t, r, O, cO, [&](float* to, int column, bool second) {  // nobody has written what lies there
        to[0] = fmaf(any ? to[0] : 0.f, shrink, O(r, column));
        if (second) to[1] = fmaf(any ? to[1] : 0.f, shrink, O(r, column + 1));
      });
      CUTE_UNROLL
      for (int i = 0; i < size<1>(O); ++i) O(r, i) = 0;
    }
    any = true;
  }
  /// After the last key: adds what lies aside to O and l.
  template <class Output, class Coordinates>
  __device__ __forceinline__ void take_back(const AttentionArgs& a, const AttentionTile& t, float c,
                                            SoftmaxF32& softmax, Output&& O, const Coordinates& cO) const {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float shrink = shrink_to(softmax.m[r], r, c);
      softmax.l[r] = fmaf(l[r], shrink, softmax.l[r]);
      for_each_pair(a, t, r, O, cO, [&](float* from, int column, bool second) {
        O(r, column) = fmaf(from[0], shrink, O(r, column));
        if (second) O(r, column + 1) = fmaf(from[1], shrink, O(r, column + 1));
      });
    }
  }

 private:
  /// What the sums of row r that lie aside are multiplied by. A row that has seen no key has 0, and -inf - -inf must not
  /// make a NaN of it.
  __device__ __forceinline__ float shrink_to(float now, int r, float c) const {
    return now == -FALCHION_INF ? 1.f : exp2((m[r] - now) * c);
  }
  /// Calls f(place in memory, its column of O, is there a second one?) for each pair of neighbours of row r.
  template <class Output, class Coordinates, class F>
  static __device__ __forceinline__ void for_each_pair(const AttentionArgs& a, const AttentionTile& t, int r,
                                                       const Output& O, const Coordinates& cO, F f) {
    int row = t.row0 + static_cast<int>(get<0>(cO(r, 0)));
    asm volatile("" : "+r"(row));  // otherwise the addresses would be computed before the loop over keys, and spilled
    if (row >= t.rows) return;
    float* const line = line_of(a, t, row);
    CUTE_UNROLL
    for (int i = 0; i < size<1>(O); i += 2) {
      const int column = static_cast<int>(get<1>(cO(r, i)));
      if (column < a.d_v) f(line + column, i, column + 1 < a.d_v);
    }
  }
};

/// Divides O by l and stores O and, where one is asked for, the LSE. Where the keys are split it stores this part of
/// them for the kernel that combines the parts.
template <class Output, class Coordinates>
__device__ __forceinline__ void store_halves(const AttentionArgs& a, const AttentionTile& t, const SoftmaxF32& softmax,
                                             Output&& O, const Coordinates& cO) {
  float normal[SoftmaxF32::kSize];
  CUTE_UNROLL
  for (int r = 0; r < SoftmaxF32::kSize; ++r) normal[r] = softmax.l[r] == 0 ? 0.f : __fdiv_rn(1.f, softmax.l[r]);
  // Lanes 0 and 1 of a quad have a row each, because a logarithm in double takes long.
  const int mine = static_cast<int>(threadIdx.x) % 4;
  float m = softmax.m[0], l = softmax.l[0];
  if (mine == 1) {
    m = softmax.m[1];
    l = softmax.l[1];
  }
  const int row = t.row0 + static_cast<int>(get<0>(cO(0, 0))) + 8 * mine;  // the second row is 8 below the first
  if (mine < SoftmaxF32::kSize && row < t.rows) {
    if (a.splits > 1)
      store_part(a, t, row, m * a.scale, l);
    else if (a.lse.data != nullptr)
      static_cast<float*>(a.lse.data)[statistic(a.lse, a, t, row)] =
          l == 0 ? -FALCHION_INF : static_cast<float>(static_cast<double>(m) * a.scale + ::log(static_cast<double>(l)));
  }
  normalise_rows(O, normal);
  if (a.splits > 1)
    store_partial(a, t, O, cO);
  else
    store_o_f32(a, t, O, cO);
}

}  // namespace falchion::sm90
