// src/sm80/attention_forward/eight/scores.cuh: the scores of kind eight: S times the scales of its row of Q and of its
// tile of keys, the cap and the band; and, where V has 8 bits, the sums of rounded P.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/band.cuh"
#include "gpu/attention_forward/scales.cuh"
#include "gpu/attention_forward/score.cuh"
#include "sm80/attention_forward/eight/config.hpp"

namespace falchion::sm80 {

using namespace gpu;

/// The sums of P of f16 as the products with V take it, of each row of a thread: products with a column of ones. So V
/// that is the same for all keys comes back exactly.
template <int kAtoms>
struct SumsOfRounded {
  float sums[kAtoms][4] = {};  // those of row i of an atom are 2 i and 2 i + 1

  template <class P>
  FALCHION_DEVICE void add(const P& p) {  // (8, M), 16 keys
    constexpr std::uint32_t kOnes = 0x3C003C00U;
    CUTE_UNROLL
    for (int m = 0; m < kAtoms; ++m) {
      const auto words = recast<const std::uint32_t>(p(_, m));
      float(&c)[4] = sums[m];
      SM80_16x8x16_F32F16F16F32_TN::fma(c[0], c[1], c[2], c[3], words(0), words(1), words(2), words(3), kOnes, kOnes,
                                        c[0], c[1], c[2], c[3]);
    }
  }
  FALCHION_DEVICE void shrink(const float (&factor)[2 * kAtoms]) {
    CUTE_UNROLL
    for (int i = 0; i < 4 * kAtoms; ++i) sums[i / 4][i % 4] *= factor[i / 2];
  }
  FALCHION_DEVICE float of(int row) const { return sums[row / 2][row % 2 * 2]; }
};

template <class Config>
struct EightScores {
  static constexpr bool kAligned = false;
  static constexpr float unit = 1, nats = kLn2;                      // apply() makes S the score in the exponent of 2
  static constexpr int kLines = Config::kRows / Config::kWarps / 8;  // rows of a thread
  const AttentionArgs& a;
  const AttentionTile& t;
  float of_row[kLines];
  float next = 1;  // the scale of the keys of the tile that comes next
  SumsOfRounded<kLines / 2> rounded;

  /// at: of S.
  template <class Coordinates>
  FALCHION_DEVICE EightScores(const AttentionArgs& a, const AttentionTile& t, const Coordinates& at) : a(a), t(t) {
    CUTE_UNROLL
    for (int r = 0; r < kLines; ++r)
      of_row[r] = scale_of_row(a, t, min(t.row0 + static_cast<int>(get<0>(at(r, 0))), t.rows - 1));
    if (t.end > t.begin) next = scale_of_keys(a, t, (t.end - 1) * Config::kKeys);
  }

  template <class S, class Coordinates>
  FALCHION_DEVICE void apply(S& s, const Coordinates&, int key0) {
    const float of_keys = a.scale * kLog2e * next;
    if (key0 > t.begin * Config::kKeys) next = scale_of_keys(a, t, key0 - Config::kKeys);
    CUTE_UNROLL
    for (int r = 0; r < kLines; ++r) {
      const float factor = of_row[r] * of_keys;
      CUTE_UNROLL
      for (int c = 0; c < size<1>(s); ++c) s(r, c) *= factor;
    }
    cap_scores<f16>(a, s);
  }
  template <class S, class Coordinates>
  FALCHION_DEVICE void keep(S& s, const Coordinates& at, int key0) const {
    keep_band(a, t, s, at, key0);
  }
  template <class Top>
  FALCHION_DEVICE void seen(const Top&) const {}
  template <class S, class Coordinates>
  FALCHION_DEVICE void drop(S&, const Coordinates&, int, int) const {}
  static FALCHION_DEVICE float kept_scale() { return 1; }
  template <class Softmax, class Coordinates>
  FALCHION_DEVICE void store_row_max(const Softmax&, const Coordinates&) const {}

  /// V of 8 bits: the factor of a row of O, which was made with the sum l of P that is not rounded.
  FALCHION_DEVICE float factor_of_o(float factor, float l, int row) const {
    return __float_as_uint(factor) == 0 ? factor : with_scale_of_v(factor * (l / rounded.of(row)), scale_of_v(a, t));
  }
};

}  // namespace falchion::sm80
