// src/sm80/attention_forward/f32/store.cuh: the end of a tile of the f32 kernel. A thread stores the columns of O that
// it owns straight from its registers, 16 bytes at a time where the rows of O are aligned.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/sinks.cuh"
#include "gpu/attention_forward/tile.cuh"
#include "sm80/attention_forward/f32/config.cuh"
#include "sm80/attention_forward/store.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Stores O / l, the LSE and the row maximum, or one part of them where the keys are split.
template <class Config, class Softmax, class Output>
FALCHION_DEVICE void store_exact(const AttentionArgs& a, const AttentionTile& t, OwnPlace at, const Softmax& softmax,
                                 float kept_scale, Output& O) {
  float normal[Config::kOwnRows], m = 0, l = 0;
  // The row whose LSE this lane computes: a logarithm in double is slow, so each lane computes only one.
  const int mine = at.key / 4;
  CUTE_UNROLL
  for (int r = 0; r < Config::kOwnRows; ++r) {
    normal[r] = softmax.l[r] == 0 ? 0.f : __fdiv_rn(kept_scale, softmax.l[r]);
    if (r == mine) {
      m = softmax.m[r];
      l = softmax.l[r];
    }
  }
  const int own = t.row0 + at.row + 2 * mine;
  RowEnd end{};
  if (has_sinks(a) && a.splits == 1) {
    end = exact_end_with_sink(m, l, sink_of_row(a, t, own));
    CUTE_UNROLL
    for (int r = 0; r < Config::kOwnRows; ++r)
      normal[r] = __shfl_sync(~0u, end.kept(kept_scale), at.row % 2 + 2 * r);  // lanes of a row: every second one
  }
  if (mine < Config::kOwnRows && own < t.rows) {
    if (a.splits > 1)
      store_part(a, t, own, m, l);
    else if (a.lse.data != nullptr)
      static_cast<float*>(a.lse.data)[statistic(a.lse, a, t, own)] =
          has_sinks(a) ? end.lse
          : l == 0     ? -FALCHION_INF
                       : static_cast<float>(m + ::log(static_cast<double>(l)));
    if (a.row_max.data != nullptr)  // NaN where the LSE is NaN
      static_cast<float*>(a.row_max.data)[statistic(a.row_max, a, t, own)] = l == l ? m : l;
  }
  normalise_rows(O, normal);
  CUTE_UNROLL
  for (int r = 0; r < Config::kOwnRows; ++r) {
    const int row = t.row0 + at.row + 2 * r;
    if (row >= t.rows) continue;
    float* line = line_of(a, t, row);
    CUTE_UNROLL
    for (int c = 0; c < Config::kOwnColumns; c += 4) {
      const int column = static_cast<int>(get<1>(at(r, c)));
      const int left = static_cast<int>(a.d_v) - column;
      float* to = line + column;
      if (left >= 4 && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
        *reinterpret_cast<float4*>(to) = make_float4(O(r, c), O(r, c + 1), O(r, c + 2), O(r, c + 3));
      } else {
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (i < left) to[i] = O(r, c + i);
        }
      }
    }
  }
}

}  // namespace falchion::sm80
