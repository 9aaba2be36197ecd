// src/sm80/attention_backward/pairs.cuh: the steps between the products of the backward pass. S = Q K^T becomes P, the
// factor of grad_v, and dP = dO V^T becomes dS, the factor of grad_q and grad_k.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/score.cuh"
#include "policy/dropout.hpp"
#include "sm80/attention_backward/load.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// A pair of tiles: query rows from q0 on of head h, keys from k0 on.
struct PairOfTiles {
  int b, h, q0, k0;
  const RowStatistic* statistics;  // of the query rows
  const Rows& k;
  const BandMask& mask;
  bool all_seen;  // every row sees every key, and no row is masked out
};

/// Calls f(r, c, query row, key) for each element of this thread; both are counted from the beginning of their tile.
template <Owner owner, class Scores, class F>
FALCHION_DEVICE void for_each_pair(F f) {
  CUTE_UNROLL
  for (int r = 0; r < Scores::kRows; ++r) {
    CUTE_UNROLL
    for (int c = 0; c < Scores::kColumns; ++c) {
      const int own = Scores::row(r), visited = Scores::column(c);
      f(r, c, owner == Owner::rows ? own : visited, owner == Owner::rows ? visited : own);
    }
  }
}

/// For problems with no feature but the band: the scale is folded into the exponent.
template <class Math>
struct PlainPairs {
  static constexpr bool kAligned = true;
  static constexpr float kUnit = kLog2e;  // of the lse in RowStatistic
  const AttentionBackwardArgs& a;
  float slope_sum = 0;

  FALCHION_DEVICE explicit PlainPairs(const AttentionBackwardArgs& a) : a(a) {}

  /// Turns S into P, and dP into dS.
  template <Owner owner>
  FALCHION_DEVICE void apply(const PairOfTiles& t, typename Math::Scores& s, typename Math::Scores& dp) {
    const float unit = a.scale * kLog2e;
    for_each_pair<owner, typename Math::Scores>([&](int r, int c, int row, int) {
      const RowStatistic x = t.statistics[row];
      s(r, c) = exp2(fmaf(s(r, c), unit, -x.lse));
      dp(r, c) = s(r, c) * (dp(r, c) - x.delta);
    });
    if (t.all_seen) return;
    for_each_pair<owner, typename Math::Scores>([&](int r, int c, int row, int key) {
      if (t.mask.keep(t.q0 + row, t.k0 + key) && !counts_for_nothing(t.statistics[row])) return;
      s(r, c) = dp(r, c) = 0;
    });
  }
};

/// Every feature. Masked pairs are selected, never multiplied by 0.
template <class Math>
struct GeneralPairs {
  using Element = typename Math::Element;
  static constexpr bool kAligned = false;
  static constexpr float kUnit = 1;  // so that a large lse is subtracted from a large score before any rounding
  const AttentionBackwardArgs& a;
  const DropoutMask dropout;
  float slope_sum = 0;  // of G |distance| over all pairs of this thread

  FALCHION_DEVICE explicit GeneralPairs(const AttentionBackwardArgs& a) : a(a), dropout(dropout_of(a)) {}

  template <Owner owner>
  FALCHION_DEVICE void apply(const PairOfTiles& t, typename Math::Scores& s, typename Math::Scores& dp) {
    apply_each<owner>(t, s, dp, [](float g, float derivative) { return g * derivative; });
  }
  /// The same, but dp becomes G itself.
  template <Owner owner>
  FALCHION_DEVICE void apply_for_bias(const PairOfTiles& t, typename Math::Scores& s, typename Math::Scores& dp) {
    apply_each<owner>(t, s, dp, [](float g, float) { return g; });
  }

 private:
  template <Owner owner, class F>
  FALCHION_DEVICE void apply_each(const PairOfTiles& t, typename Math::Scores& s, typename Math::Scores& dp, F f) {
    const int shift = static_cast<int>(t.mask.shift);
    for_each_pair<owner, typename Math::Scores>([&](int r, int c, int row, int key) {
      const int i = t.q0 + row, j = t.k0 + key;
      const RowStatistic x = t.statistics[row];
      const ScoreRow<Element> line(a, t.b, t.h, i, shift, t.k.first);
      const bool seen = t.mask.keep(i, j) && !counts_for_nothing(x) && line.sees(j);
      const bool kept = !(a.dropout > 0) || (seen && dropout.keep(t.b, t.h, i, j));
      const float factor = a.dropout > 0 ? dropout.keep_scale : 1.f;
      float p = 0, g = 0, derivative = 1;
      if (seen) {
        const float score = line.add_bias(line.apply(s(r, c), j, &derivative), j);
        p = exp2((score - x.lse) * kLog2e);
        g = p * ((kept ? factor * dp(r, c) : 0.f) - x.delta);
      }
      s(r, c) = kept ? p * factor : 0.f;
      dp(r, c) = seen ? f(g, derivative) : 0.f;
      slope_sum += g * line.distance(j);
    });
  }
};

}  // namespace falchion::sm80
