// src/sm80/attention_forward/general.cuh: the variants of kind `general`, which have every feature: softcap, ALiBi,
// bias, boolean mask, dropout, row maximum, probabilities, any scale, and rows that are not 16-byte aligned. Scores are
// computed in a separate pass between the two products.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/after.hpp"
#include "gpu/attention_forward/score.cuh"
#include "policy/dropout.hpp"
#include "sm80/attention_forward/f32/kernel.cuh"
#include "sm80/attention_forward/kernel.cuh"

namespace falchion::sm80 {

using namespace gpu;

template <class Element>
struct GeneralScores {
  static constexpr bool kAligned = false;
  static constexpr float unit = kLog2e, nats = 1;  // apply() makes S the final score
  const AttentionArgs& a;
  const AttentionTile& t;
  DropoutMask dropout;
  float highest[8];  // true maximum of each row so far, over this lane's columns

  FALCHION_DEVICE GeneralScores(const AttentionArgs& a, const AttentionTile& t) : a(a), t(t), dropout(dropout_of(a)) {
    CUTE_UNROLL
    for (float& x : highest) x = -FALCHION_INF;
  }

  /// Does score.apply, and adds the bias and the boolean mask. keep() does the rest.
  template <class S, class Coordinates>
  FALCHION_DEVICE void apply(S& s, const Coordinates& at, int key0) const {
    CUTE_UNROLL
    for (int r = 0; r < size<0>(s); ++r) {
      const int row = t.row0 + static_cast<int>(get<0>(at(r, 0)));
      if (row >= t.rows) continue;
      const ScoreRow<Element> line(a, t, row);
      const auto key = [&](int c) { return key0 + static_cast<int>(get<1>(at(r, c))); };
      CUTE_UNROLL
      for (int c = 0; c < size<1>(s); ++c) s(r, c) = line.apply(s(r, c), key(c));
      if (a.bias.data == nullptr && a.mask.data == nullptr) continue;
      CUTE_UNROLL
      for (int c = 0; c < size<1>(s); ++c) {
        if (key(c) < t.k.length) s(r, c) = line.add_bias_and_mask(s(r, c), key(c));
      }
    }
  }
  template <class S, class Coordinates>
  FALCHION_DEVICE void keep(S& s, const Coordinates& at, int key0) const {
    keep_band(a, t, s, at, key0);
  }
  template <int kRows>
  FALCHION_DEVICE void seen(const float (&top)[kRows]) {
    static_assert(kRows <= 8);
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) highest[r] = fmaxf(highest[r], top[r]);
  }

  /// Drops elements of P in step k (16 keys). l includes them. The two neighbouring columns of a lane belong to the
  /// same block of Philox.
  template <class S, class Coordinates>
  FALCHION_DEVICE void drop(S& s, const Coordinates& at, int key0, int k) const {
    if (a.dropout <= 0) return;
    CUTE_UNROLL
    for (int r = 0; r < size<0>(s); ++r) {
      const int row = t.row0 + static_cast<int>(get<0>(at(r, 0)));
      CUTE_UNROLL
      for (int c = 4 * k; c < 4 * k + 4; c += 2) {
        const int key = key0 + static_cast<int>(get<1>(at(r, c)));
        const Philox::Block block = dropout.words(t.b, t.head(row), t.query(row), key);
        const bool upper = key % 4 >= 2;
        if ((upper ? block.word[2] : block.word[0]) < dropout.threshold) s(r, c) = 0;
        if ((upper ? block.word[3] : block.word[1]) < dropout.threshold) s(r, c + 1) = 0;
      }
    }
  }
  FALCHION_DEVICE float kept_scale() const { return a.dropout > 0 ? dropout.keep_scale : 1.f; }

  template <class Softmax, class Coordinates>
  FALCHION_DEVICE void store_row_max(const Softmax& softmax, const Coordinates& at) const {
    if (a.row_max.data == nullptr) return;
    CUTE_UNROLL
    for (int r = 0; r < Softmax::kSize; ++r) {
      const float top = over_quad(highest[r], [](float x, float y) { return fmaxf(x, y); });
      const int row = t.row0 + static_cast<int>(get<0>(at(r, 0)));
      if (threadIdx.x % 4 != 0 || row >= t.rows) continue;
      static_cast<float*>(a.row_max.data)[statistic(a.row_max, a, t, row)] =
          softmax.l[r] == softmax.l[r] ? top : softmax.l[r];  // NaN where the LSE is NaN
    }
  }
};

template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_general() {
  if constexpr (std::is_same_v<Element, f32>) {
    return attention_forward_f32<kD>();
  } else {
    return attention_forward_entry<AttentionForwardConfig<Element, kD, Kind::general>, GeneralScores<Element>>(
        launch_attention_probabilities<Element>);
  }
}

}  // namespace falchion::sm80
