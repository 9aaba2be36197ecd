// src/ref/attention_forward.cpp: the definition of attention. It says what is computed; cpu/attention_forward.hpp and
// sm90/attention_forward.cuh say how. It is naive on purpose: it makes two passes over the keys and asks mask.keep for
// each key, so that no bug of the tiled kernels can hide here.
#include "ref/attention_forward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "policy/dropout.hpp"
#include "policy/mask.hpp"
#include "policy/score.hpp"
#include "ref/elements.hpp"

namespace falchion::ref {
namespace {

constexpr int kMaxHeadDim = 256;

/// One query row with everything that its scores depend on.
template <class Real>
struct Query {
  const Attention& a;
  const Operands& x;
  ScoreMod<Real> mod;
  BandMask mask;
  DropoutMask dropout;
  std::int64_t b, h;
  Rows q_rows, k_rows;
  std::int64_t i = 0;
  Real q[kMaxHeadDim] = {};

  std::int64_t column(std::int64_t j) const { return k_rows.first + j; }  // key j's in bias, mask and probabilities
  std::int64_t h_kv() const { return h / (a.h_q / a.h_k); }               // g query heads share a K/V head

  void load_q(std::int64_t row) {
    i = row;
    const std::int64_t offset = at(x.q, q_rows.batch, q_rows.begin + i, h, 0);
    for (std::int64_t d = 0; d < a.d_qk; ++d) q[d] = load(x.q, offset + at(x.q, 3, d));
  }
  bool sees(std::int64_t j) const {
    if (!mask.keep(i, j)) return false;
    if (a.mask && static_cast<const unsigned char*>(x.mask.data)[at(x.mask, b, h, i, column(j))] == 0) return false;
    return !a.bias || load(x.bias, at(x.bias, b, h, i, column(j))) != -std::numeric_limits<float>::infinity();
  }
  Real score(std::int64_t j) const {
    const std::int64_t offset = at(x.k, k_rows.batch, k_rows.begin + j, h_kv(), 0);
    Real dot = 0;
    for (std::int64_t d = 0; d < a.d_qk; ++d) dot += q[d] * static_cast<Real>(load(x.k, offset + at(x.k, 3, d)));
    const Real s = mod.apply(dot, static_cast<Real>(i + mask.shift - j));
    return a.bias ? s + static_cast<Real>(load(x.bias, at(x.bias, b, h, i, column(j)))) : s;
  }
  /// The factor that dropout multiplies key j's probability by: 0 or 1 / (1 - p).
  Real kept(std::int64_t j) const {
    if (!(a.dropout > 0)) return 1;
    return dropout.keep(b * a.h_q + h, i, j) ? static_cast<Real>(dropout.keep_scale) : 0;
  }
};

template <class Real>
void attend(const Query<Real>& query, Rounding rounding) {
  const Attention& a = query.a;
  const Operands& x = query.x;
  const Real infinity = std::numeric_limits<Real>::infinity();
  const std::int64_t s_k = query.k_rows.length, row = query.q_rows.begin + query.i;

  Real m = -infinity;  // the largest score; NaN when one is NaN
  for (std::int64_t j = 0; j < s_k; ++j) {
    if (!query.sees(j)) continue;
    const Real s = query.score(j);
    if (!(s <= m)) m = std::isnan(m) ? m : s;
  }
  const bool empty = m == -infinity;  // it sees no key, or all its scores are -inf: O = 0, LSE = -inf

  Real l = 0, o[kMaxHeadDim] = {};
  for (std::int64_t j = 0; j < s_k && !empty; ++j) {
    if (!query.sees(j)) continue;  // skipped and not multiplied by 0, so NaN in V of a masked key has no effect
    const Real p = std::exp(query.score(j) - m);
    l += p;
    const Real kept = query.kept(j);
    if (kept == 0) continue;
    const Real rounded = p < rounding.least_p ? 0 : static_cast<Real>(round_as(rounding.p, p)) * kept;
    const std::int64_t offset = at(x.v, query.k_rows.batch, query.k_rows.begin + j, query.h_kv(), 0);
    for (std::int64_t d = 0; d < a.d_v; ++d) o[d] += rounded * static_cast<Real>(load(x.v, offset + at(x.v, 3, d)));
  }

  const std::int64_t offset = at(x.o, query.q_rows.batch, row, query.h, 0);
  for (std::int64_t d = 0; d < a.d_v; ++d)
    store(x.o, offset + at(x.o, 3, d), round_as(rounding.o, empty ? 0 : o[d] / l));
  if (a.lse) store(x.lse, at(x.lse, query.q_rows.batch, query.h, row, 0), empty ? -infinity : m + std::log(l));
  if (a.row_max)  // NaN where the LSE is NaN: a row with a score of +inf has no softmax
    store(x.row_max, at(x.row_max, query.q_rows.batch, query.h, row, 0), std::isnan(l) ? l : m);
  for (std::int64_t j = 0; a.probabilities && j < a.s_k; ++j) {
    const std::int64_t key = j - query.k_rows.first;
    const bool seen = !empty && key >= 0 && key < s_k && query.sees(key);
    store(x.probabilities, at(x.probabilities, query.b, query.h, query.i, j),
          seen ? std::exp(query.score(key) - m) / l : 0);
  }
}

float slope_of(const Tensor& slopes, std::int64_t b, std::int64_t h) {
  return static_cast<float>(load(slopes, at(slopes, slopes.shape[0] == 1 ? 0 : b, 0, h, 0)));
}

DropoutMask dropout_of(const Attention& a, const Rng& rng) {
  const bool elsewhere = a.dropout > 0 && rng.at != nullptr;
  return DropoutMask::make(a.dropout, rng.seed + (elsewhere ? rng.at[0] : 0), rng.offset + (elsewhere ? rng.at[1] : 0));
}

template <class Real>
void attention_forward(const Attention& a, const Operands& x, Rounding rounding) {
  const float scale =
      a.score.scale != 0 ? a.score.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(a.d_qk)));
  const DropoutMask dropout = dropout_of(a, x.rng);
  for (std::int64_t b = 0; b < a.b; ++b) {
    const Rows q_rows = rows_of(b, x.cu_seqlens_q, x.used_q, x.q.shape[1]);
    const Rows k_rows = rows_of(b, x.cu_seqlens_k, x.used_k, x.k.shape[1], x.first_k);
    const std::int64_t shift = a.band.align == Align::top_left ? 0 : k_rows.length - q_rows.length;
    for (std::int64_t h = 0; h < a.h_q; ++h) {
      Query<Real> query{.a = a,
                        .x = x,
                        .mod = {scale, a.score.softcap, a.alibi ? slope_of(x.alibi, b, h) : 0},
                        .mask = BandMask::make(k_rows.length, shift, a.band.left, a.band.right),
                        .dropout = dropout,
                        .b = b,
                        .h = h,
                        .q_rows = q_rows,
                        .k_rows = k_rows};
      for (std::int64_t i = 0; i < q_rows.length; ++i) {
        query.load_q(i);
        attend(query, rounding);
      }
    }
  }
}

}  // namespace

void attention_forward(const Attention& problem, const Operands& operands, Rounding rounding) noexcept {
  if (rounding.single_precision) {
    attention_forward<float>(problem, operands, rounding);
  } else {
    attention_forward<double>(problem, operands, rounding);
  }
}

}  // namespace falchion::ref
