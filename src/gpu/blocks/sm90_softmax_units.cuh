// src/gpu/blocks/sm90_softmax_units.cuh: the softmax of gpu/blocks/sm90_softmax.cuh where each row and each tile of
// keys has its own unit of S, because the operands have scales.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_softmax.cuh"

namespace falchion::sm90 {

/// m is in the exponent of 2, since units change from tile to tile. So s c - m is rounded once, however large both are,
/// and nothing is ever `far`. A row that has seen no key has an m that makes its first P infinite.
struct SoftmaxOfUnits : SoftmaxRows<2> {
  static constexpr float kMost = Softmax::kMost, kNothing = -3.4e38f;

  /// P = exp2(s c - m) of element i of S.
  FALCHION_DEVICE float update(float s, int i, float c, TileSums& sums) const {
    const float p = exp2(fmaf(s, c, -m[row_of(i)]));
    sums.add(i, p);
    return p;
  }
  /// As Softmax::outgrown.
  FALCHION_DEVICE bool outgrown(const TileSums& sums) const {
    return __any_sync(~0u, sums.of(0) > kMost || sums.of(1) > kMost);
  }
  FALCHION_DEVICE void add(const TileSums& sums) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) l[r] += sums.of(r);
  }

  /// Sets m to the maxima of the first keys.
  template <class Scores>
  FALCHION_DEVICE void start_tile(const Scores& S, const float (&c)[2]) {
    float shrink[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      m[r] = kNothing;
      l[r] = 0;
    }
    raise(S, TileSums::unknown(), c, shrink);
  }
  /// Raises m of the rows whose sum is above the limit to the maximum so far. O must be multiplied by shrink, as l is.
  template <class Scores>
  FALCHION_DEVICE void raise(const Scores& S, const TileSums& sums, const float (&c)[2], float (&shrink)[2]) {
    float top[2];
    maxima(S, top);
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      // Both use shuffles of the whole warp, so neither may be conditional.
      const float sum = largest_of_row(sums.of(r)), highest = largest_of_row(top[r]);
      const float after = sum > kMost ? fmaxf(m[r], highest * c[r]) : m[r];
      shrink[r] = after == m[r] ? 1.f : exp2(m[r] - after);
      m[r] = after;
      l[r] *= shrink[r];
    }
  }

  /// As those of SoftmaxRows. m needs no unit.
  FALCHION_DEVICE float reference(int r, float) const { return m[r] == kNothing ? -FALCHION_INF : m[r]; }
  FALCHION_DEVICE float lse(int r, float) const {
    return m[r] == kNothing && l[r] == 0 ? -FALCHION_INF : (m[r] + log2(l[r])) * kLn2;
  }
};

}  // namespace falchion::sm90
