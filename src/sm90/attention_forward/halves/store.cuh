// src/sm90/attention_forward/halves/store.cuh: the end of a tile of softmax attention in f32 on Hopper.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/sinks.cuh"
#include "gpu/attention_forward/store.cuh"
#include "gpu/blocks/sm90_softmax_f32.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// Stores O in f32 straight from the registers: two neighbours at a time, so that a quad of lanes writes 32 bytes.
template <class Output, class Coordinates>
FALCHION_DEVICE void store_o_f32(const AttentionArgs& a, const AttentionTile& t, const Output& O,
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
      if (a.aligned) {  // implies that d_v is a multiple of 4
        if (column < d_v) *reinterpret_cast<float2*>(to + column) = {O(r, c), O(r, c + 1)};
      } else {
        if (column < d_v) to[column] = O(r, c);
        if (column + 1 < d_v) to[column + 1] = O(r, c + 1);
      }
    }
  }
}

/// Divides O by l and stores O and, if requested, the LSE. Where the keys are split it stores this part of them for the
/// kernel that combines the parts.
template <class Output, class Coordinates>
FALCHION_DEVICE void store_halves(const AttentionArgs& a, const AttentionTile& t, const SoftmaxF32& softmax, Output&& O,
                                  const Coordinates& cO) {
  float normal[SoftmaxF32::kSize];
  CUTE_UNROLL
  for (int r = 0; r < SoftmaxF32::kSize; ++r) normal[r] = softmax.l[r] == 0 ? 0.f : __fdiv_rn(1.f, softmax.l[r]);
  // Lanes 0 and 1 of each quad compute one row's LSE each, because a logarithm in double is slow.
  const int mine = static_cast<int>(threadIdx.x) % 4;
  float m = softmax.m[0], l = softmax.l[0];
  if (mine == 1) {
    m = softmax.m[1];
    l = softmax.l[1];
  }
  const int row = t.row0 + static_cast<int>(get<0>(cO(0, 0))) + 8 * mine;  // the second row is 8 below the first
  RowEnd end{};
  if (has_sinks(a) && a.splits == 1) {
    end = exact_end_with_sink(static_cast<double>(m) * a.scale, l, sink_of_row(a, t, row));
    const int first = static_cast<int>(threadIdx.x) % 32 / 4 * 4;
    CUTE_UNROLL
    for (int r = 0; r < SoftmaxF32::kSize; ++r) normal[r] = __shfl_sync(~0u, end.factor, first + r);
  }
  if (mine < SoftmaxF32::kSize && row < t.rows) {
    if (a.splits > 1)
      store_part(a, t, row, m * a.scale, l);
    else if (a.lse.data != nullptr)
      static_cast<float*>(a.lse.data)[statistic(a.lse, a, t, row)] =
          has_sinks(a) ? end.lse
          : l == 0     ? -FALCHION_INF
                       : static_cast<float>(static_cast<double>(m) * a.scale + ::log(static_cast<double>(l)));
  }
  normalise_rows(O, normal);
  if (a.splits > 1)
    store_partial(a, t, O, cO);
  else
    store_o_f32(a, t, O, cO);
}

}  // namespace falchion::sm90
