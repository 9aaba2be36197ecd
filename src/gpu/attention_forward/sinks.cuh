// src/gpu/attention_forward/sinks.cuh: the end of a row of softmax attention whose head has a sink: one more key
// without a row of V, which is added once, where a row has seen all its keys.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/softmax.cuh"

namespace falchion::gpu {

/// The factor of O, and the LSE. The factor is 0 if no key was seen, and -0 if the sink leaves nothing of O but its NaN
/// (gpu/attention_forward/store.cuh, normalise_rows).
struct RowEnd {
  float factor, lse;
  /// The factor where dropout multiplies by kept_scale. A kept_scale of 0 drops every key, and its NaN with it: never
  /// -0.
  FALCHION_DEVICE float kept(float kept_scale) const { return kept_scale * (kept_scale == 0 ? fabsf(factor) : factor); }
};

/// m, l: of the keys, where O and l are relative to 2^m; m is -inf and l is 0 if no key was seen. It is exact enough
/// for 16-bit operands.
FALCHION_DEVICE RowEnd end_with_sink(float m, float l, float sink) {
  sink *= kLog2e;
  const float top = fmaxf(m, sink), reference = top == -FALCHION_INF ? 0.f : top;
  const float shrink = exp2(m - reference), all = fmaf(l, shrink, exp2(sink - reference));
  const float factor = shrink * reciprocal(all);
  return {l == 0 ? 0.f : factor == 0 ? -0.f : factor, (reference + log2(all)) * kLn2};
}
/// The same in f32, where m is natural.
FALCHION_DEVICE RowEnd exact_end_with_sink(double m, float l, float sink) {
  const double infinity = FALCHION_INF, top = fmax(m, static_cast<double>(sink)),
               reference = top == -infinity ? 0 : top;
  const double shrink = ::exp(m - reference), all = l * shrink + ::exp(sink - reference);
  const float factor = static_cast<float>(shrink / all);
  return {l == 0 ? 0.f : factor == 0 ? -0.f : factor, static_cast<float>(reference + ::log(all))};
}

FALCHION_DEVICE bool has_sinks(const AttentionArgs& a) { return a.sinks.data != nullptr; }
FALCHION_DEVICE float sink_of_row(const AttentionArgs& a, const AttentionTile& t, int row) {
  return sink_of(a, t.b, t.head(row));
}

}  // namespace falchion::gpu
