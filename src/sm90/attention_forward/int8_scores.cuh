// src/sm90/attention_forward/int8_scores.cuh: the forward variants of kind int8_scores on Hopper: Q and K are int8 with
// scales, and S is an exact sum in s32. V, P and their product are those of kind plain. docs/design/sm90_forward.md,
// "int8 scores", describes what differs.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/band.cuh"
#include "gpu/attention_forward/score.cuh"
#include "gpu/blocks/sm90_softmax_units.cuh"
#include "sm90/attention_forward/launch.cuh"
#include "sm90/attention_forward/scales.cuh"

namespace falchion::sm90 {

using namespace gpu;

/// The kernel's interface to scores. S stays s32 in the loop: an exponential converts its element. Only where P must be
/// made once more, or where keys are masked, is all of S converted (`kLate`), since s32 has no infinity.
struct Int8Scores {
  using Softmax = SoftmaxOfUnits;
  static constexpr bool kLate = true;
  static constexpr float kLeastUnit = 0x1p-126f;  // -inf times it is still -inf
  const AttentionArgs& a;
  float of_row[2];  // the scales of this thread's two rows of Q
  float unit[2];    // one unit of S in the exponent of 2, of each row, for this tile of keys

  template <class Coordinates>
  FALCHION_DEVICE Int8Scores(const AttentionArgs& a, const TileRecord& tile, const Divisors& by, const Coordinates& at)
      : a(a) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r)
      of_row[r] = scale_of_row(a, tile, by, min(tile.row0 + static_cast<int>(get<0>(at(r, 0))), tile.rows - 1));
  }
  /// word: the unit that the tile of keys brings along.
  FALCHION_DEVICE void start_tile(unsigned word) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) unit[r] = of_row[r] * __uint_as_float(word);
  }
  FALCHION_DEVICE float unit_of(int i) const { return unit[row_of(i)]; }
  static FALCHION_DEVICE float nats(const AttentionArgs&) { return kLn2; }
  FALCHION_DEVICE bool is_more_than_scaled() const { return a.softcap > 0; }

  /// The softcap makes scores in units of their own. Otherwise S stays as it is.
  template <class S, class Coordinates>
  FALCHION_DEVICE void apply(S& s, const Coordinates&, int) {
    if (!is_more_than_scaled()) return;
    const float most = a.softcap * kLog2e, inverse = 1 / most;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      CUTE_UNROLL
      for (int c = 0; c < size<1>(s); ++c) s(r, c) = most * tanh_of<cutlass::half_t>(s(r, c) * unit[r] * inverse);
      unit[r] = 1;
    }
  }
  /// A row that sees no key of the tile must not get the NaN of their scale, and one with a scale of 0 must not make a
  /// NaN of -inf.
  template <class S, class Coordinates>
  FALCHION_DEVICE void keep(const AttentionTile& t, S& s, const Coordinates& at, int key0) {
    keep_band(a, t, s, at, key0);
    float top[2];
    maxima(s, top);
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (largest_of_row(top[r]) == -FALCHION_INF) unit[r] = 1;
      if (unit[r] == 0) unit[r] = kLeastUnit;
    }
  }
};

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_int8_scores() {
  return attention_forward_entry<AttentionForwardConfig<Element, kD, Kind::int8_scores>, Int8Scores>();
}

}  // namespace falchion::sm90
