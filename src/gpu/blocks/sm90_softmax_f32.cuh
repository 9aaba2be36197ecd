// src/gpu/blocks/sm90_softmax_f32.cuh: the online softmax for f32 on wgmma, where a thread has two rows of a tile and
// the four lanes of a quad share a row. It is exact to the last bits: m is always the true maximum so far, and it is
// subtracted from S before the multiplication.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_softmax.cuh"

namespace falchion::sm90 {

struct SoftmaxF32 : SoftmaxRows<2> {
  /// Sets m to the maximum so far and multiplies l by shrink. If the result is true, O must be multiplied by shrink
  /// too. All lanes of the warp get the same result. c: one unit of S in the exponent of 2.
  template <class Scores>
  FALCHION_DEVICE bool raise(const Scores& S, float c, float (&shrink)[kSize]) {
    float top[kSize];
    maxima(S, top);
    bool raised = false;
    CUTE_UNROLL
    for (int r = 0; r < kSize; ++r) {
      const float after = fmaxf(m[r], largest_of_row(top[r]));
      raised |= after > m[r];
      // While a row has seen no key, O and l are 0, and -inf - -inf must not turn them into NaN.
      shrink[r] = after == -FALCHION_INF ? 1.f : exp2((m[r] - after) * c);
      m[r] = after;
      l[r] *= shrink[r];
    }
    return __any_sync(~0u, raised);
  }
  /// Replaces S by P = exp2((S - m) c) and adds P to l. The P of this tile are summed first, because each addition to a
  /// long sum rounds at the magnitude of that sum.
  template <class Scores>
  FALCHION_DEVICE void update(Scores& S, float c) {
    CUTE_UNROLL
    for (int r = 0; r < kSize; ++r) {
      const float base = m[r] == -FALCHION_INF ? 0.f : m[r];
      float sum = 0;
      CUTE_UNROLL
      for (int j = 0; j < size<1>(S); ++j) {
        S(r, j) = exp2(__fmul_rn(S(r, j) - base, c));
        sum += S(r, j);
      }
      l[r] += sum;
    }
  }
};

}  // namespace falchion::sm90
