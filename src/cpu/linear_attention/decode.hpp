// src/cpu/linear_attention/decode.hpp: one token of the recurrence, computed directly. The state is read once and
// written once, in place if both states are one view; the rest is negligible.
#pragma once

#include "cpu/linear_attention/state.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Memory for one row of each tensor.
struct StepRows {
  float *q, *k, *v, *o, *z;
};

/// S' = fade S + k v^T and o += q^T S' for kRows rows of S, which are in_row and out_row apart. `in` is null if there
/// is no state yet, and `out` is null if none is requested.
template <int kRows>
FALCHION_INLINE void step_rows(const float* in, std::int64_t in_row, float* out, std::int64_t out_row, float fade,
                               const float* k, const float* q, const StepRows& x, std::int64_t n) {
  std::int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
    const Floats v = load(x.v + c);
    Floats o = load(x.o + c);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      Floats s = hn::Mul(splat(k[r]), v);
      if (in != nullptr) s = hn::MulAdd(splat(fade), load(in + r * in_row + c), s);
      if (out != nullptr) store(s, out + r * out_row + c);  // S' = fade S + k v^T
      o = hn::MulAdd(splat(q[r]), s, o);                    // o += q^T S'
    }
    store(o, x.o + c);
  }
  for (; c < n; ++c) {
    for (int r = 0; r < kRows; ++r) {
      const float s = (in != nullptr ? fade * in[r * in_row + c] : 0) + k[r] * x.v[c];
      if (out != nullptr) out[r * out_row + c] = s;
      x.o[c] += q[r] * s;
    }
  }
}

FALCHION_INLINE bool can_step(const StateRef& start, const StateRef& end) {
  return (start.s == nullptr || start.col == 1) && (end.s == nullptr || end.col == 1);
}

template <class T>
void step_once(const LinearAttentionArgs& a, const Walk& walk, std::int64_t h, const StateRef& start,
               const StateRef& end, const StepRows& x) {
  using Bits = typename T::Bits;
  const std::int64_t h_qk = h / (a.h_v / a.h_qk);
  convert<T>(walk.at<const Bits>(a.q, 0, h_qk), a.d_qk, x.q);
  convert<T>(walk.at<const Bits>(a.k, 0, h_qk), a.d_qk, x.k);
  convert<T>(walk.at<const Bits>(a.v, 0, h), a.d_v, x.v);
  if (a.elu) {
    elu_plus_one<SimdProducts>(x.q, a.d_qk);
    elu_plus_one<SimdProducts>(x.k, a.d_qk);
  }
  double f = 0;
  load_decay(a, walk, 0, 1, h, 0, &f);
  const float fade = static_cast<float>(::exp(f));

  std::memset(x.o, 0, static_cast<std::size_t>(a.d_v) * sizeof(float));
  std::int64_t e = 0;
  const auto row = [](const StateRef& s, std::int64_t i) { return s.s == nullptr ? nullptr : s.s + i * s.row; };
  for (; e + 4 <= a.d_qk; e += 4)
    step_rows<4>(row(start, e), start.row, row(end, e), end.row, fade, x.k + e, x.q + e, x, a.d_v);
  for (; e < a.d_qk; ++e)
    step_rows<1>(row(start, e), start.row, row(end, e), end.row, fade, x.k + e, x.q + e, x, a.d_v);

  float factor = a.scale;
  if (a.normalise) {
    start.load_z(a.d_qk, x.z);
    float sum = 0;
    for (std::int64_t i = 0; i < a.d_qk; ++i) {
      x.z[i] = fade * x.z[i] + x.k[i];
      sum += x.q[i] * x.z[i];
    }
    end.store_z(a.d_qk, x.z);
    factor /= a.scale * sum + a.eps;
  }
  store_row<T>(walk.at<Bits>(a.o, 0, h), x.o, factor, a.d_v);
}

}  // namespace falchion::cpu::FALCHION_LEVEL
