// src/sm90/attention_forward/score.cuh: the forward variants of kind score on Hopper, for softcap and ALiBi. Every
// element of S becomes a score before its exponential is taken. docs/design/sm90_forward.md describes the kernel.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/band.cuh"
#include "gpu/attention_forward/score.cuh"
#include "sm90/attention_forward/launch.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// The kernel's interface to scores, for scores with softcap or ALiBi.
template <class Element>
struct Scores {
  using Softmax = sm90::Softmax;
  static constexpr bool kLate = false;
  static constexpr float unit = kLog2e;  // S is a final score by then, in the exponent of e
  const AttentionArgs& a;
  float slope[2];   // ALiBi's slope for each of this thread's two rows
  int position[2];  // the key at which the diagonal meets each of them

  template <class Coordinates>
  FALCHION_DEVICE Scores(const AttentionArgs& a, const TileRecord& tile, const Divisors& by, const Coordinates& at)
      : a(a) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = min(tile.row0 + static_cast<int>(get<0>(at(r, 0))), tile.rows - 1);
      const int query = by.group.div(row);
      slope[r] = slope_of(a, tile.b, tile.h + row - query * by.group.divisor);
      position[r] = query + static_cast<int>(tile.mask.shift);
    }
  }
  static FALCHION_DEVICE float unit_of(int) { return unit; }
  static FALCHION_DEVICE float nats(const AttentionArgs&) { return 1; }

  /// score.apply: softcap(scale dot) - slope |distance|.
  template <class S, class Coordinates>
  FALCHION_DEVICE void apply(S& s, const Coordinates& at, int key0) const {
    CUTE_UNROLL
    for (int i = 0; i < size(s); ++i) s(i) *= a.scale;
    if (a.softcap > 0) {
      const float inverse = 1 / a.softcap;
      CUTE_UNROLL
      for (int i = 0; i < size(s); ++i) s(i) = a.softcap * tanh_of<Element>(s(i) * inverse);
    }
    if (a.alibi.data == nullptr) return;
    CUTE_UNROLL
    for (int r = 0; r < size<0>(s); ++r) {
      const auto key = [&](int c) { return key0 + static_cast<int>(get<1>(at(r, c))); };
      CUTE_UNROLL
      for (int c = 0; c < size<1>(s); ++c) s(r, c) -= slope[r] * fabsf(static_cast<float>(position[r] - key(c)));
    }
  }
  template <class S, class Coordinates>
  FALCHION_DEVICE void keep(const AttentionTile& t, S& s, const Coordinates& at, int key0) const {
    keep_band(a, t, s, at, key0);
  }
};

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_score() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Kind::score>, Scores<Element>>();
}

}  // namespace falchion::sm90
