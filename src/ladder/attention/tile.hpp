// src/ladder/attention/tile.hpp: what steps 02 and 03 of the CPU share: tiles in the first-level cache and the two
// small matrix products on them. The steps differ only in who walks over what.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "ladder/attention/step.hpp"

namespace falchion::ladder::on_cpu {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr int kM = 256, kN = 64;

/// A key tile: K transposed, so that the inner loop of Q K^T runs over keys and fills the lanes of a vector.
template <int kD>
struct KeyTile {
  float Kt[kD][kN], V[kN][kD];  // 32 KB at d 64

  /// Keys [k0, k0 + kN); those past s_k are 0, so that masked they add nothing.
  void load(const Problem& p, Head<const float> K, Head<const float> Values, int k0) {
    for (int n = 0; n < kN; ++n) {
      const bool there = k0 + n < p.s_k;
      for (int x = 0; x < kD; ++x) Kt[x][n] = there ? K[k0 + n][x] : 0;
      std::fill_n(V[n], kD, 0.f);
      if (there) std::copy_n(Values[k0 + n], kD, V[n]);
    }
  }
};

/// S = scale Q K^T for row i, and -inf where the mask says so.
template <int kD>
void scores(const Problem& p, const float* Q, const KeyTile<kD>& tile, const BandMask& mask, int i, int k0, float* S) {
  std::fill_n(S, kN, 0.f);
  for (int x = 0; x < kD; ++x)
    for (int n = 0; n < kN; ++n) S[n] += Q[x] * tile.Kt[x][n];
  for (int n = 0; n < kN; ++n) S[n] = mask.keep(i, k0 + n) ? p.scale * S[n] : -kInfinity;
}

/// exp(s - m), and 0 where nothing has been seen: -inf - -inf is no number.
inline float weight(float s, float m) { return s == -kInfinity ? 0 : std::exp(s - m); }

/// S -> P = exp(S - m), and the sum of P.
inline float exponentials(float* S, float m) {
  float sum = 0;
  for (int n = 0; n < kN; ++n) sum += S[n] = weight(S[n], m);
  return sum;
}

/// O += P V for one row.
template <int kD>
void add_values(const float* P, const KeyTile<kD>& tile, float* O) {
  for (int n = 0; n < kN; ++n)
    for (int x = 0; x < kD; ++x) O[x] += P[n] * tile.V[n][x];
}

/// Calls f(integral_constant<int, d>): loops of a known length need no rest.
template <class F>
Status with_head_dim(const Problem& p, const F& f) {
  if (p.d == 64) return f(std::integral_constant<int, 64>{}), Status{};
  if (p.d == 128) return f(std::integral_constant<int, 128>{}), Status{};
  return {Code::unsupported, "the ladder has head dims 64 and 128, not " + std::to_string(p.d)};
}

}  // namespace falchion::ladder::on_cpu
