// src/gpu/attention_forward/score.cuh: turns a dot product into a score, with scale, softcap, ALiBi, bias and boolean
// mask. cpu/blocks/score_mask.hpp does the same on the CPU.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/softmax.cuh"

namespace falchion::gpu {

/// tanh with an absolute error of 2e-7, which is enough for the scores of 16-bit inputs; tanh.approx has an error of
/// 5e-4. In f32 the error must be small relative to the score itself, so there the library's tanh is called in double:
/// no f32 one is exact enough in this build.
template <class Element>
FALCHION_DEVICE float tanh_of(float x) {
  if constexpr (sizeof(Element) == 4) return static_cast<float>(::tanh(static_cast<double>(x)));
  return 1 - __fdividef(2.f, 1 + exp2(2 * kLog2e * x));
}

/// The softcap of scores in the exponent of 2, if there is one.
template <class Element, class S>
FALCHION_DEVICE void cap_scores(const AttentionCall& a, S& s) {
  if (!(a.softcap > 0)) return;
  const float most = a.softcap * kLog2e, inverse = 1 / most;
  CUTE_UNROLL
  for (int i = 0; i < size(s); ++i) s(i) = most * tanh_of<Element>(s(i) * inverse);
}

/// Do scores need more than one factor for all?
FALCHION_DEVICE bool is_more_than_scaled(const AttentionCall& a) {
  return a.softcap > 0 || a.alibi.data != nullptr || a.bias.data != nullptr || a.mask.data != nullptr;
}

/// The inputs of the scores of one query row.
template <class Element>
struct ScoreRow {
  const AttentionCall& a;
  float slope;
  int position;  // the key that lies on this query's diagonal
  const void* bias;
  const std::uint8_t* mask;

  FALCHION_DEVICE ScoreRow(const AttentionArgs& a, const AttentionTile& t, int row)
      : ScoreRow(a, t.b, t.head(row), t.query(row), static_cast<int>(t.mask.shift), t.k.first) {}
  /// first is the column of bias and mask that belongs to key 0 of the sequence.
  FALCHION_DEVICE ScoreRow(const AttentionCall& a, int b, int h, int i, int shift, int first) : a(a) {
    slope = slope_of(a, b, h);
    position = i + shift;
    const std::int64_t size = a.bias_f32 ? 4 : sizeof(Element);
    bias = static_cast<const std::byte*>(a.bias.data) + offset(a.bias, b, h, i, first) * size;
    mask = static_cast<const std::uint8_t*>(a.mask.data) + offset(a.mask, b, h, i, first);
  }

  /// score.apply: returns softcap(scale dot) - slope |distance|.
  FALCHION_DEVICE float apply(float dot, int key) const {
    float s = a.scale * dot;
    if (a.softcap > 0) s = a.softcap * tanh_of<Element>(s / a.softcap);
    return add_alibi(s, key);
  }
  /// The same, and *derivative is the derivative of the softcap.
  FALCHION_DEVICE float apply(float dot, int key, float* derivative) const {
    const float s = a.scale * dot;
    *derivative = 1;
    if (!(a.softcap > 0)) return add_alibi(s, key);
    const float t = tanh_of<Element>(s / a.softcap);
    *derivative = 1 - t * t;
    return add_alibi(a.softcap * t, key);
  }
  FALCHION_DEVICE float distance(int key) const { return fabsf(static_cast<float>(position - key)); }
  /// Adds the bias and applies the mask. A bias of -inf is selected instead of added, because NaN + -inf is NaN, which
  /// would unmask the key.
  FALCHION_DEVICE float add_bias_and_mask(float s, int key) const {
    if (a.bias.data != nullptr) {
      const float x = bias_of(key);
      s = x == -FALCHION_INF ? x : s + x;
    }
    return is_masked(key) ? -FALCHION_INF : s;
  }
  /// Adds the bias.
  FALCHION_DEVICE float add_bias(float s, int key) const { return a.bias.data != nullptr ? s + bias_of(key) : s; }
  /// Whether mask and bias let the row see the key. A score of -inf alone does not mean masked: the dot product may be
  /// -inf.
  FALCHION_DEVICE bool sees(int key) const {
    return !is_masked(key) && !(a.bias.data != nullptr && bias_of(key) == -FALCHION_INF);
  }

 private:
  FALCHION_DEVICE float bias_of(int key) const {
    return a.bias_f32 ? static_cast<const float*>(bias)[key * a.bias.stride[3]]
                      : static_cast<float>(static_cast<const Element*>(bias)[key * a.bias.stride[3]]);
  }
  FALCHION_DEVICE bool is_masked(int key) const { return a.mask.data != nullptr && mask[key * a.mask.stride[3]] == 0; }
  FALCHION_DEVICE float add_alibi(float s, int key) const {
    return a.alibi.data != nullptr ? s - slope * distance(key) : s;
  }
  static FALCHION_DEVICE std::int64_t offset(const View& x, int b, int h, int i, int first) {
    return b * x.stride[0] + h * x.stride[1] + i * x.stride[2] + first * x.stride[3];
  }
};

}  // namespace falchion::gpu
