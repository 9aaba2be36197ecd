// src/cpu/linear_attention/chunk.hpp: one chunk of the recurrence that linear attention and its three gradients share.
// A walk goes over tokens i with decays f_i, whose sum is F_i = f_0 + ... + f_i, and carries a state S:
//   out_i = sum over j <= i of e^(F_i - F_j) (x_i . y_j) w_j + e^(F_i) x_i S
//   S     = e^F S + sum over j of e^(F - F_j) y_j w_j^T
// In the forward pass (x, y, w) = (q, k, v), for dQ it is (do, v, k), and walking backwards it is (v, do, q) for dK and
// (k, q, do) for dV.
#pragma once

#include "cpu/blocks/exp2.hpp"
#include "cpu/blocks/products.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// 2^y for y of any size. Where products are of tiles (amx, avx512_bf16) results below 2^-80 are 0, because these
/// products flush small operands.
FALCHION_INLINE Floats fade(Floats y) {
  const Floats e = exp2<6>(hn::IfThenElse(hn::Gt(y, splat(128.f)), splat(128.f), y));
  return FALCHION_TILES ? hn::IfThenZeroElse(hn::Lt(y, splat(-80.f)), e) : e;
}

/// F in bits (f log2 e), kept as sums of two floats, since the difference F_i - F_j is needed, which is near 0, while F
/// itself may be in the thousands.
class ChunkDecay {
 public:
  explicit ChunkDecay(Arena& arena) {
    for (float** p : {&high_, &low_, &each_, &in_, &out_}) *p = arena.take<float>(kChunk);
  }
  void set(bool any, const double* f, std::int64_t n) {
    any_ = any;
    if (!any) return;
    double sum = 0;
    for (std::int64_t i = 0; i < kChunk; ++i) {
      const double bits = i < n ? f[i] * 1.4426950408889634 : 0;
      each_[i] = static_cast<float>(bits);
      sum += bits;
      high_[i] = static_cast<float>(sum);
      low_[i] = static_cast<float>(sum - high_[i]);
    }
    for (std::int64_t i = 0; i < kChunk; i += kLanes) {
      store(fade(load(each_ + i)), each_ + i);
      store(fade(load(high_ + i)), in_ + i);
      store(fade(hn::Add(hn::Sub(splat(high_[n - 1]), load(high_ + i)), hn::Sub(splat(low_[n - 1]), load(low_ + i)))),
            out_ + i);
    }
    total_ = in_[n - 1];
  }
  FALCHION_INLINE bool any() const { return any_; }
  FALCHION_INLINE Floats between(std::int64_t j, std::int64_t i) const {  // e^(F_i - F_j), lanes j
    return fade(hn::Add(hn::Sub(splat(high_[i]), load(high_ + j)), hn::Sub(splat(low_[i]), load(low_ + j))));
  }
  float each(std::int64_t i) const { return any_ ? each_[i] : 1; }  // e^(f_i)
  const float* in() const { return in_; }                           // e^(F_i)
  const float* out() const { return out_; }                         // e^(F - F_i)
  float total() const { return any_ ? total_ : 1; }                 // e^F

 private:
  bool any_ = false;
  float *high_, *low_, *each_, *in_, *out_, total_ = 1;
};

FALCHION_INLINE void scale_row(const float* in, float factor, std::int64_t n, float* out) {
  for (std::int64_t c = 0; c < n; c += kLanes) store(hn::Mul(load(in + c), splat(factor)), out + c);
}

/// For each token j of a chunk the score x_i . y_j becomes factor_j x_i . y_j + term_j. This is computed in f32, before
/// any rounding, because the two may cancel. With `own` the score of token i with itself is written there and does not
/// count in out_i, which then is a sum over j < i.
struct ScoreTerms {
  const float *factor = nullptr, *term = nullptr;  // (kChunk)
  float* own = nullptr;                            // (kChunk)
};

template <class Products>
class CausalChunk {
 public:
  /// `widest` is the largest width of x, y and w.
  CausalChunk(Arena& arena, std::int64_t widest) : products_(arena, widest), decay_(arena) {
    scaled_ = Matrix::take(arena, kChunk, widest);
  }
  /// Starts the next chunk, with n rows and their decays, if there are any.
  void start(bool any, const double* f, std::int64_t n) {
    decay_.set(any, f, n);
    products_.start();
  }
  const ChunkDecay& decay() const { return decay_; }
  /// The list of rows to prefetch during the products.
  Upcoming& upcoming() { return products_.upcoming(); }

  /// Computes `out` of the n rows. x_s is the x that is multiplied by the state. SimdProducts::outputs() explains done.
  template <class Done>
  void outputs(std::int64_t n, const Rows& x, const Rows& y, const Rows& w, const State& s, const Done& done) {
    outputs(n, x, {}, y, w, x, s, done);
  }
  template <class Done>
  void outputs(std::int64_t n, const Rows& x, const ScoreTerms& terms, const Rows& y, const Rows& w, const Rows& x_s,
               const State& s, const Done& done) {
    const Keep keep{*this, terms};
    const bool scales = decay_.any() && !s.zero;
    products_.outputs(n, x, y, w, scales ? scaled(x_s, n, decay_.in()) : x_s, s, keep, done);
  }

  /// Advances s to the state after the n rows.
  void update(std::int64_t n, const Rows& y, const Rows& w, State* s) {
    const Rows y_out = decay_.any() ? scaled(y, n, decay_.out()) : y;
    for (std::int64_t r = 0; r < y.width && decay_.any() && !s->zero; ++r)
      scale_row(s->m.row(r), decay_.total(), w.width, s->m.row(r));
    products_.update(n, y_out, w, s);  // S += Y^T W
  }

 private:
  struct Keep {
    const CausalChunk& chunk;
    const ScoreTerms& terms;
    FALCHION_INLINE bool trivial() const { return chunk.keeps_all(terms); }  // only the zeros are written
    FALCHION_INLINE void operator()(std::int64_t first, std::int64_t end, std::int64_t c, std::int64_t end_c,
                                    Matrix p) const {
      chunk.keep_causal(first, end, c, end_c, terms, p);
    }
  };
  Rows scaled(const Rows& x, std::int64_t n, const float* factors) const {
    for (std::int64_t i = 0; i < n; ++i) scale_row(x.m.row(i), factors[i], x.width, scaled_.row(i));
    return {scaled_, x.width, x.spoiled};
  }

  FALCHION_INLINE bool keeps_all(const ScoreTerms& terms) const { return !decay_.any() && terms.factor == nullptr; }
  /// Fades rows [first, end) and columns [from, to) of the scores (i, j), which are whole blocks, and sets them to 0
  /// where j > i (with own: where j >= i), up to the next block. The zeros are selected and not multiplied, because the
  /// scores there are undefined and may be NaN.
  void keep_causal(std::int64_t first, std::int64_t end, std::int64_t from, std::int64_t to, const ScoreTerms& terms,
                   Matrix scores) const {
    const auto lanes = hn::Iota(Int32Tag(), 0);
    for (std::int64_t i = first; i < end; ++i) {
      float* row = scores.row(i - first);
      std::int64_t j = i / kLanes * kLanes;
      for (std::int64_t c = from; c < min(to, j + kLanes) && !keeps_all(terms); c += kLanes) {
        float* at = row + (c - from);
        if (terms.factor != nullptr) store(hn::MulAdd(load(at), load(terms.factor + c), load(terms.term + c)), at);
        if (decay_.any()) store(hn::Mul(load(at), decay_.between(c, i)), at);
      }
      if (j < from || j >= to) continue;
      if (terms.own != nullptr) terms.own[i] = row[i - from];
      const auto last = static_cast<std::int32_t>(i - j - (terms.own != nullptr ? 1 : 0));
      const auto past = hn::Gt(lanes, hn::Set(Int32Tag(), last));
      store(hn::IfThenZeroElse(hn::RebindMask(kFloats, past), load(row + (j - from))), row + (j - from));
      for (j += kLanes; j < i / kBlock * kBlock + kBlock; j += kLanes) store(splat(0.f), row + (j - from));
    }
  }

  Products products_;
  ChunkDecay decay_;
  Matrix scaled_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
