// src/cpu/blocks/online_softmax.hpp: softmax over a stream of key blocks, where each lane is a query row (Milakov and
// Gimelshein 2018; FlashAttention-2, arXiv:2307.08691, section 3.1). Scores are stored as S^T (keys, kM). So a row's
// maximum and sum run down the keys, and no instruction works across lanes.
#pragma once

#include "cpu/blocks/exp2.hpp"
#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// The running state of kM rows. O and l are kept relative to 2^(m c), where m need not be the true maximum. It is
/// raised only when the scores outgrow it by kSlack bits, so O is almost never rescaled after the first block (the
/// conditional rescale of FlashAttention-4). P may then reach 2^kSlack, which does no harm in floating point.
struct alignas(64) OnlineSoftmax {
  static constexpr float kSlack = 8;
  float m[kM];       // the reference of each row, in units of S
  float top[kM];     // the true maximum so far, in units of S
  float l[kM];       // sum of exp2((s - m) c)
  float shrink[kM];  // set by raise: the factor of O

  FALCHION_INLINE void reset() {
    for (int i = 0; i < kM; ++i) {
      m[i] = top[i] = -__builtin_inff();
      l[i] = 0;
    }
  }

  // A block of scores S (keys, kM) takes three calls: outgrown(), then raise() if outgrown() returned true, then
  // update(). c > 0 converts units of S to bits. Between instructions tick(n) is called, where n is the share of the
  // work since the last call; all n add up to weight(keys).

  /// Computes P = exp2((S - m) c) of S (keys, kM), passes it to put(key, vec, p(key), p(key + 1)) for even keys, and
  /// adds it to l. 16-bit types compute the difference with one multiply-subtract, s c - m c, unless m c is too large
  /// for that (kFar). For f32 the rounding of m c would be visible.
  template <int kDegree, class Put, class Tick>
  FALCHION_INLINE void update(const float* S, int keys, float c, Put put, Tick tick) {
    const Floats scale = splat(c);
    Floats reference[kVecs], base[kVecs];
    bool far = false;
    for (int v = 0; v < kVecs; ++v) {
      // A row that has seen no key keeps m = -inf. 0 is used in its place, to avoid -inf - -inf.
      const Floats m_v = load(m + v * kLanes);
      reference[v] = hn::IfThenZeroElse(hn::Eq(m_v, splat(-__builtin_inff())), m_v);
      base[v] = hn::Mul(reference[v], scale);
      far |= !hn::AllFalse(kFloats, hn::Gt(hn::Abs(base[v]), splat(kFar)));
    }
    const auto exact = [&](Floats s, int v) { return hn::Mul(hn::Sub(s, reference[v]), scale); };
    const auto folded = [&](Floats s, int v) { return hn::MulSub(s, scale, base[v]); };
    if constexpr (kDegree == kExactDegree) {
      add<kDegree>(S, keys, exact, put, tick);
    } else if (far) {
      add_far<kDegree>(S, keys, exact, put);
    } else {
      add<kDegree>(S, keys, folded, put, tick);
    }
  }
  static FALCHION_INLINE int weight(int keys) { return keys + keys / 8; }

  /// From this many bits on it is not safe to subtract m c: its rounding error may exceed the range of P, or it may
  /// overflow (masks of -1e30 and the like are added to scores). There s - m is computed first, which is exact where it
  /// matters.
  static constexpr float kFar = 1048576;

  /// Updates `top` with the scores. Returns whether some row exceeds its m by more than the slack.
  template <class Tick>
  FALCHION_INLINE bool outgrown(const float* S, int keys, float c, Tick tick) {
    Floats high[kVecs];
    for (int v = 0; v < kVecs; ++v) high[v] = load(S + v * kLanes);
    for (int key = 0; key < keys; key += 8) {
      for (int v = 0; v < kVecs; ++v) {
        const float* s = S + key * kM + v * kLanes;
        const Floats a = hn::Max(hn::Max(load(s), load(s + kM)), hn::Max(load(s + 2 * kM), load(s + 3 * kM)));
        const Floats b =
            hn::Max(hn::Max(load(s + 4 * kM), load(s + 5 * kM)), hn::Max(load(s + 6 * kM), load(s + 7 * kM)));
        high[v] = hn::Max(high[v], hn::Max(a, b));
      }
      tick(1);
    }
    const Floats slack = splat(kSlack / c);
    bool any = false;
    for (int v = 0; v < kVecs; ++v) {
      store(hn::Max(load(top + v * kLanes), high[v]), top + v * kLanes);
      any |= !hn::AllFalse(kFloats, hn::Gt(high[v], hn::Add(load(m + v * kLanes), slack)));
    }
    return any;
  }

  /// Sets m = top and multiplies l by `shrink`. The caller must multiply its sums made with the old m by the same.
  void raise(float c) {
    for (int v = 0; v < kVecs; ++v) {
      const Floats before = load(m + v * kLanes);
      const Floats after = hn::Max(before, load(top + v * kLanes));
      const Floats ratio = exp2<5>(hn::Mul(hn::Sub(before, after), splat(c)));
      // A row that has seen no key has O = l = 0, and -inf - -inf must not turn them into NaN.
      const Floats factor = hn::IfThenElse(hn::Eq(after, splat(-__builtin_inff())), splat(1.f), ratio);
      store(factor, shrink + v * kLanes);
      store(hn::Mul(load(l + v * kLanes), factor), l + v * kLanes);
      store(after, m + v * kLanes);
    }
  }

 private:
  static constexpr int kExactDegree = 6;  // f32

  template <int kDegree, class Bits, class Put>
  __attribute__((noinline)) void add_far(const float* S, int keys, Bits bits, Put put) {
    add<kDegree>(S, keys, bits, put, [](int) {});
  }

  /// The part of update() that makes P = exp2(bits(S, vec)), calls put and adds to l.
  template <int kDegree, class Bits, class Put, class Tick>
  FALCHION_INLINE void add(const float* S, int keys, Bits bits, Put put, Tick tick) {
    Floats sum[kVecs];
    for (int v = 0; v < kVecs; ++v) sum[v] = splat(0.F);
    for (int key = 0; key < keys; key += 2) {
      for (int v = 0; v < kVecs; ++v) {
        const float* s = S + key * kM + v * kLanes;
        const Floats p0 = exp2<kDegree>(bits(load(s), v));
        const Floats p1 = exp2<kDegree>(bits(load(s + kM), v));
        sum[v] = hn::Add(sum[v], hn::Add(p0, p1));
        put(key, v, p0, p1);
      }
      tick(2);
    }
    for (int v = 0; v < kVecs; ++v) store(hn::Add(load(l + v * kLanes), sum[v]), l + v * kLanes);
  }
};

/// Multiplies O^T (rows, kM) by `shrink`, lane by lane.
FALCHION_INLINE void scale_rows(float* O, int rows, const float* shrink) {
  for (int v = 0; v < kVecs; ++v) {
    const Floats factor = load(shrink + v * kLanes);
    for (int r = 0; r < rows; ++r) {
      float* o = O + r * kM + v * kLanes;
      store(hn::Mul(load(o), factor), o);
    }
  }
}

}  // namespace falchion::cpu::FALCHION_LEVEL
