// src/sm80/attention_forward/f32/softmax.cuh: the softmax of the f32 kernel. 16 lanes of a warp share a row.
#pragma once

#include <cute/tensor.hpp>

#include "base/host_device.hpp"
#include "gpu/blocks/softmax.cuh"

namespace falchion::sm80 {

using namespace gpu;

using namespace cute;

template <class Op>
FALCHION_DEVICE float over_row(float x, Op op) {
  CUTE_UNROLL
  for (int step = 2; step < 32; step *= 2) x = op(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

/// Like OnlineSoftmax, but accurate to the last bits: m is always the true maximum so far, and it is subtracted from s
/// before the multiplication.
template <int kRows>
struct ExactSoftmax {
  float m[kRows];  // the maximum so far; the same in all lanes of a row
  float l[kRows];  // sum of exp(s - m) over this lane's keys

  FALCHION_DEVICE void reset() {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      m[r] = -FALCHION_INF;
      l[r] = 0;
    }
  }
  /// Sets m to the maximum so far and multiplies l by shrink. If the result is true, O must be multiplied by shrink
  /// too. All lanes of the warp get the same result.
  template <class Scores>
  FALCHION_DEVICE bool raise(const Scores& S, float (&shrink)[kRows]) {
    bool raised = false;
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float top = m[r];
      CUTE_UNROLL
      for (int j = 0; j < size<1>(S); ++j) top = fmaxf(top, S(r, j));  // fmaxf ignores a NaN, which reaches l instead
      top = over_row(top, [](float x, float y) { return fmaxf(x, y); });
      raised |= top > m[r];
      // While a row has seen no key, O and l are 0, and -inf - -inf must not turn them into NaN.
      shrink[r] = top == -FALCHION_INF ? 1.f : exp2((m[r] - top) * kLog2e);
      m[r] = top;
      l[r] *= shrink[r];
    }
    return __any_sync(~0u, raised);
  }
  /// Replaces S by P = exp(S - m) and adds P to l, as the sum of this tile.
  template <class Scores>
  FALCHION_DEVICE void update(Scores& S) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float base = m[r] == -FALCHION_INF ? 0.f : m[r];
      float sum = 0;
      CUTE_UNROLL
      for (int j = 0; j < size<1>(S); ++j) {
        S(r, j) = exp2(__fmul_rn(S(r, j) - base, kLog2e));
        sum += S(r, j);
      }
      l[r] += sum;
    }
  }
  /// Sums l over the lanes of a row, so that all of them have the whole sum.
  FALCHION_DEVICE void finish() {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) l[r] = over_row(l[r], [](float x, float y) { return x + y; });
  }
};

}  // namespace falchion::sm80
