// src/ladder/attention/tile.hpp: what steps 02 and 03 on the CPU share: tiles in the first-level cache and the two
// small matrix products on them. These steps differ only in the order of their loops.
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

/// A tile of keys. K is transposed, so that the inner loop of Q K^T runs over keys and fills the lanes of a vector.
template <int kD>
struct KeyTile {
  float Kt[kD][kN], V[kN][kD];  // 32 KB at d 64

  /// Loads the keys [k0, k0 + kN). Keys past s_k become 0, so that they add nothing once they are masked.
  void load(const Problem& p, Head<const float> K, Head<const float> Values, int k0) {
    for (int n = 0; n < kN; ++n) {
      const bool there = k0 + n < p.s_k;
      for (int x = 0; x < kD; ++x) Kt[x][n] = there ? K[k0 + n][x] : 0;
      std::fill_n(V[n], kD, 0.f);
      if (there) std::copy_n(Values[k0 + n], kD, V[n]);
    }
  }
};

/// Computes S = scale Q K^T for row i, and -inf where the mask says so.
template <int kD>
void scores(const Problem& p, const float* Q, const KeyTile<kD>& tile, const BandMask& mask, int i, int k0, float* S) {
  std::fill_n(S, kN, 0.f);
  for (int x = 0; x < kD; ++x)
    for (int n = 0; n < kN; ++n) S[n] += Q[x] * tile.Kt[x][n];
  for (int n = 0; n < kN; ++n) S[n] = mask.keep(i, k0 + n) ? p.scale * S[n] : -kInfinity;
}

/// exp(s - m), and 0 where no key has been seen, because -inf - -inf is NaN.
inline float weight(float s, float m) { return s == -kInfinity ? 0 : std::exp(s - m); }

/// Replaces S by P = exp(S - m) and returns the sum of P.
inline float exponentials(float* S, float m) {
  float sum = 0;
  for (int n = 0; n < kN; ++n) sum += S[n] = weight(S[n], m);
  return sum;
}

/// Computes O += P V for one row.
template <int kD>
void add_values(const float* P, const KeyTile<kD>& tile, float* O) {
  for (int n = 0; n < kN; ++n)
    for (int x = 0; x < kD; ++x) O[x] += P[n] * tile.V[n][x];
}

/// Calls f(integral_constant<int, d>), because loops of a length that is known at compile time leave no remainder.
template <class F>
Status with_head_dim(const Problem& p, const F& f) {
  if (p.d == 64) {
    f(std::integral_constant<int, 64>{});
    return {};
  }
  if (p.d == 128) {
    f(std::integral_constant<int, 128>{});
    return {};
  }
  return {Code::unsupported, "the ladder has head dims 64 and 128, not " + std::to_string(p.d)};
}

}  // namespace falchion::ladder::on_cpu
