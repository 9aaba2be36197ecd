// src/cpu/blocks/score_mask.hpp: score.apply and mask.keep, the two steps between S = Q K^T
// and softmax.update, on S^T of one chunk.
#pragma once

#include "args/cpu_attention_args.hpp"
#include "cpu/blocks/exp2.hpp"
#include "cpu/blocks/rows.hpp"
#include "policy/score.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Whether S needs no separate pass, because the scale can be folded into the exponent and only the band is applied. A
/// scale of 0, below 0 or far from 1 needs the pass: folded in, 0 * -inf would be NaN and 8 / scale would not be
/// finite.
FALCHION_INLINE bool plain_scores(const AttentionCall& a) {
  return a.scale > 1e-30f && a.scale < 1e30f && a.softcap == 0 && a.alibi.data == nullptr && a.bias.data == nullptr &&
         a.mask.data == nullptr;
}

/// The factor from S to the final score. It is 1 for decode, which applies the scale when it computes S.
FALCHION_INLINE float score_unit(const AttentionArgs& a) { return !a.decode && plain_scores(a) ? a.scale : 1.F; }

/// The value of S for masked keys. In the forward pass it is -inf, like a score of -inf: both have a probability of 0.
/// In the backward pass the two differ, because G = P (dP - D) of a visible pair is NaN if dP or D is, even if P is 0.
/// So the mark is a signalling NaN, which no operation yields and no score is.
inline constexpr float kHiddenForward = -__builtin_inff(), kHiddenBackward = __builtin_nansf("1");

/// The keys of S that are in memory at one time: keys [key0 + begin, key0 + stop) of the sequence. Row 0 of S is that
/// of `begin`.
struct KeySpan {
  std::int64_t key0;
  int begin, stop;
  FALCHION_INLINE int count() const { return stop - begin; }
};

/// How the scores of row i are made.
FALCHION_INLINE ScoreMod<float> score_of(const AttentionCall& a, const TileRows& t, int i) {
  return {a.scale, a.softcap, slope_of(a, t.b, t.head(i))};
}

/// score.apply: S = softcap(scale S) - slope |distance|. With a softcap, `derivative`, if not null, gets its
/// derivative.
FALCHION_INLINE void apply_score(const AttentionCall& a, const TileRows& t, const KeySpan& keys, float* S,
                                 float* derivative = nullptr) {
  alignas(64) float slope[kM] = {}, position[kM] = {};
  const std::int64_t shift = t.sequence.shift(a);
  for (int i = 0; i < t.count && a.alibi.data != nullptr; ++i) {
    slope[i] = slope_of(a, t.b, t.head(i));
    position[i] = static_cast<float>(t.query(i) + shift - keys.key0);  // distance to key j of the span: |position - j|
  }
  const Floats scale = splat(a.scale), cap = splat(a.softcap);
  for (int key = keys.begin; key < keys.stop; ++key) {
    for (int v = 0; v < kVecs; ++v) {
      float* s = S + (key - keys.begin) * kM + v * kLanes;
      Floats x = hn::Mul(load(s), scale);
      if (a.softcap > 0) {
        const Floats t_of_x = tanh(hn::Div(x, cap));
        x = hn::Mul(cap, t_of_x);
        if (derivative != nullptr)
          store(hn::NegMulAdd(t_of_x, t_of_x, splat(1.F)), derivative + (key - keys.begin) * kM + v * kLanes);
      }
      if (a.alibi.data != nullptr) {
        const Floats distance = hn::Abs(hn::Sub(load(position + v * kLanes), splat(static_cast<float>(key))));
        x = hn::NegMulAdd(load(slope + v * kLanes), distance, x);
      }
      store(x, s);
    }
  }
}

template <class T>
FALCHION_INLINE float bias_of(const AttentionCall& a, const TileRows& t, int i, std::int64_t j) {
  if (a.bias.data == nullptr) return 0;
  return a.bias_f32 ? t.scores<const float>(a.bias, i)[j * a.bias.stride[3]]
                    : T::to_float(t.scores<const typename T::Bits>(a.bias, i)[j * a.bias.stride[3]]);
}

/// Adds the bias and applies the boolean mask, one lane at a time, because keys are contiguous in both of them while
/// rows are contiguous in S.
template <class T>
FALCHION_INLINE void add_bias_and_mask(const AttentionCall& a, const TileRows& t, const KeySpan& keys, float hidden,
                                       float* S) {
  const std::int64_t key0 = keys.key0;
  for (int i = 0; i < t.count; ++i) {
    const int first = static_cast<int>(max(keys.begin, t.begin[i] - key0));
    const int end = static_cast<int>(min(keys.stop, t.end[i] - key0));
    if (a.bias.data != nullptr) {
      for (int key = first; key < end; ++key) {
        const float bias = bias_of<T>(a, t, i, key0 + key);
        float& s = S[(key - keys.begin) * kM + i];
        s = bias == -__builtin_inff() ? hidden : s + bias;  // s is replaced, since NaN + -inf would not mask the key
      }
    }
    if (a.mask.data != nullptr) {
      const auto* keep = t.scores<const std::uint8_t>(a.mask, i) + key0 * a.mask.stride[3];
      for (int key = first; key < end; ++key) {
        if (keep[key * a.mask.stride[3]] == 0) S[(key - keys.begin) * kM + i] = hidden;
      }
    }
  }
}

/// mask.keep: S = hidden for masked keys. A band is an interval of keys in each lane.
FALCHION_INLINE void keep_band(const TileRows& t, const KeySpan& keys, float hidden, float* S) {
  const Int32Tag ints;
  const auto key0 = static_cast<std::int32_t>(keys.key0);
  const Floats masked = splat(hidden);
  for (int v = 0; v < kVecs; ++v) {
    const Int32s begin = hn::LoadU(ints, t.begin + v * kLanes), end = hn::LoadU(ints, t.end + v * kLanes);
    for (int key = keys.begin; key < keys.stop; ++key) {
      const Int32s j = hn::Set(ints, key0 + key);
      float* s = S + (key - keys.begin) * kM + v * kLanes;
      const auto keep = hn::AndNot(hn::Lt(j, begin), hn::Lt(j, end));
      store(hn::IfThenElse(hn::RebindMask(kFloats, keep), load(s), masked), s);
    }
  }
}

/// S = -inf at keys in pages that are not there.
FALCHION_INLINE void hide_holes(const TileRows& t, const KeySpan& keys, float hidden, float* S) {
  const std::int64_t end = min(keys.stop, t.sequence.k_len - keys.key0);
  for (std::int64_t key = keys.begin; key < end; ++key) {
    if (t.sequence.keys.at(keys.key0 + key).exists()) continue;
    for (int v = 0; v < kVecs; ++v) store(splat(hidden), S + (key - keys.begin) * kM + v * kLanes);
  }
}

/// Whether lane i sees key j by the band, the mask and the bias together. Called in rare cases only.
template <class T>
FALCHION_INLINE bool sees(const AttentionCall& a, const TileRows& t, int i, std::int64_t j) {
  if (j < t.begin[i] || j >= t.end[i] || !t.sequence.keys.at(j).exists()) return false;
  if (a.mask.data != nullptr && t.scores<const std::uint8_t>(a.mask, i)[j * a.mask.stride[3]] == 0) return false;
  return bias_of<T>(a, t, i, j) != -__builtin_inff();
}

}  // namespace falchion::cpu::FALCHION_LEVEL
