// src/cpu/attention_backward/weigh.hpp: the steps of the backward pass between S, dP and the products with P and dS, on
// one chunk of keys: P = exp(S - L), G = P (r dP - D), dS = G f', where r is the factor of dropout and f' the
// derivative of the softcap. Lanes are query rows, so L and D are vectors and nothing crosses lanes.
#pragma once

#include "cpu/blocks/exp2.hpp"
#include "cpu/blocks/gradient_operands.hpp"
#include "cpu/blocks/score_mask.hpp"
#include "policy/dropout.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// exp(x) for any x. In the forward pass no exponent is above 8; here lse is an input of the caller.
template <int kDegree>
FALCHION_INLINE Floats exp_of_any(Floats x) {
  const Floats y = hn::Mul(x, splat(kLog2e));
#if FALCHION_AVX512
  return exp2<kDegree>(y);
#else
  return exp2<kDegree>(hn::IfThenElse(hn::Gt(y, splat(128.F)), splat(128.F), y));  // 2^128 is Inf
#endif
}

/// Tensors of a chunk beside S and dP, each (keys, kM). Null: not needed.
struct ChunkTensors {
  float* derivative = nullptr;  // of the softcap
  float* kept = nullptr;        // the factor of dropout: 0 or 1 / (1 - p)
  float* g = nullptr;           // G, for the gradients of bias and slopes
};

/// Draws the factors of dropout for the keys of a span. Philox makes those of four neighbouring keys at a time.
FALCHION_INLINE void draw_kept(const DropoutMask& dropout, const TileRows& t, const KeySpan& keys, float* kept) {
  for (int i = 0; i < t.count; ++i) {
    Philox::Block words{};
    for (int key = keys.begin; key < keys.stop; ++key) {
      const std::int64_t j = keys.key0 + key;
      if (key == keys.begin || j % 4 == 0) words = dropout.words(t.b, t.head(i), t.query(i), j);
      kept[(key - keys.begin) * kM + i] = words.word[j % 4] >= dropout.threshold ? dropout.keep_scale : 0;
    }
  }
}

/// The lanes for which the key is masked. The bits are compared, because NaN is not equal to itself.
FALCHION_INLINE auto is_hidden(Floats s) {
  const Int32Tag ints;
  return hn::RebindMask(kFloats, hn::Eq(hn::BitCast(ints, s), hn::BitCast(ints, splat(kHiddenBackward))));
}

/// Computes P and dS in the memory of S and dP, where `unit` times S is the final score, and passes them to put(key,
/// vec, P(key), P(key + 1), dS(key), dS(key + 1)) for even keys. Without kKeep S and dP are not read afterwards, and
/// are not written. With kSelect P and dS are 0 for masked pairs, also where dP, L or D is NaN. Without it there are no
/// masked pairs.
template <class T, bool kSelect, bool kKeep, class Put>
FALCHION_INLINE void weigh_plain(const GradientTile& t, int keys, float unit, float* S, float* dP, const Put& put) {
  constexpr int kAtOnce = kVecs == 2 ? 2 : 1;  // vectors whose L and D are in registers
  const Floats scale = splat(unit);
  for (int first = 0; first < kVecs; first += kAtOnce) {
    Floats lse[kAtOnce], d[kAtOnce];
    for (int u = 0; u < kAtOnce; ++u) {
      lse[u] = load(t.lse + (first + u) * kLanes);
      d[u] = load(t.d + (first + u) * kLanes);
    }
    const auto weigh = [&](int u, float* s_at, float* dp_at, Floats* p, Floats* ds) {
      const Floats s = load(s_at);
      *p = exp_of_any<T::kExp2Degree>(hn::MulSub(s, scale, lse[u]));
      *ds = hn::Mul(*p, hn::Sub(load(dp_at), d[u]));
      if constexpr (kSelect) {
        const auto unseen = is_hidden(s);
        *p = hn::IfThenZeroElse(unseen, *p);
        *ds = hn::IfThenZeroElse(unseen, *ds);
      }
      if constexpr (!kKeep) return;
      store(*p, s_at);
      store(*ds, dp_at);
    };
    for (int key = 0; key < keys; key += 2) {
#pragma GCC unroll 2
      for (int u = 0; u < kAtOnce; ++u) {
        const int at = key * kM + (first + u) * kLanes;
        Floats p0, p1, ds0, ds1;
        weigh(u, S + at, dP + at, &p0, &ds0);
        weigh(u, S + at + kM, dP + at + kM, &p1, &ds1);
        put(key, first + u, p0, p1, ds0, ds1);
      }
    }
  }
}

/// The same for every feature; S holds final scores. The gradients of a bias and of slopes sum G in f32, and its terms
/// may cancel, so kDegree is then that of f32 for all types: with the polynomial of bf16, whose error is 8.6e-5, the
/// sum over a row's keys had errors of up to thirty times the limit.
template <int kDegree>
void weigh_general(const GradientTile& t, int keys, float* S, float* dP, const ChunkTensors& x) {
  const Floats zero = splat(0.F);
  for (int v = 0; v < kVecs; ++v) {
    const Floats lse = load(t.lse + v * kLanes), d = load(t.d + v * kLanes);
    for (int key = 0; key < keys; ++key) {
      const int at = key * kM + v * kLanes;
      const Floats s = load(S + at);
      Floats p = exp_of_any<kDegree>(hn::Sub(s, lse)), dp = load(dP + at), weight = p;
      if (x.kept != nullptr) {
        const Floats kept = load(x.kept + at);
        const auto dropped = hn::Eq(kept, zero);
        dp = hn::IfThenZeroElse(dropped, hn::Mul(dp, kept));  // also if V of a dropped key is NaN
        weight = hn::IfThenZeroElse(dropped, hn::Mul(p, kept));
      }
      const auto unseen = is_hidden(s);
      const Floats g = hn::IfThenZeroElse(unseen, hn::Mul(p, hn::Sub(dp, d)));
      if (x.g != nullptr) store(g, x.g + at);
      store(hn::IfThenZeroElse(unseen, weight), S + at);
      const Floats ds = x.derivative == nullptr ? g : hn::Mul(g, load(x.derivative + at));
      store(hn::IfThenZeroElse(unseen, ds), dP + at);
    }
  }
}

/// sums (kM) -= G |distance|, summed over the keys of a span.
FALCHION_INLINE void add_slopes(const AttentionCall& a, const GradientTile& t, const KeySpan& keys, const float* G,
                                float* sums) {
  alignas(64) float position[kM] = {};
  for (int i = 0; i < t.count; ++i)
    position[i] = static_cast<float>(t.query(i) + t.sequence.shift(a) - keys.key0 - keys.begin);
  for (int v = 0; v < kVecs; ++v) {
    Floats sum = splat(0.F);
    for (int key = 0; key < keys.count(); ++key) {
      const Floats distance = hn::Abs(hn::Sub(load(position + v * kLanes), splat(static_cast<float>(key))));
      sum = hn::MulAdd(load(G + key * kM + v * kLanes), distance, sum);
    }
    store(hn::Sub(load(sums + v * kLanes), sum), sums + v * kLanes);
  }
}

}  // namespace falchion::cpu::FALCHION_LEVEL
