// src/ref/attention_forward.cpp: the definition of attention. cpu/attention_forward/kernel.hpp and
// sm90/attention_forward/kernel.cuh compute the same fast. It is naive on purpose: it makes two passes over the keys
// and calls mask.keep for each key, so that it shares no bug with the tiled kernels.
#include "ref/attention_forward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "ref/query.hpp"

namespace falchion::ref {
namespace {

/// Probabilities before a V of e4m3: 2^(8 + s log2 e - r), where r is the largest score of the row in bits, rounded up
/// to whole ones. So the largest is above 2^7 and at most 2^8, and another r is a factor that is a power of two.
template <class Real>
struct Bytes {
  bool there = false;  // is v of e4m3?
  Real r = 0;

  static Real bits(Real s) { return s * std::numbers::log2e_v<Real>; }
  static Bytes of(const Attention& a, Real m) {
    const DType v = a.dtype_v == DType::as_q ? a.dtype : a.dtype_v;
    const bool there = is_of_bytes(a) && v == DType::e4m3;
    return {there, there ? std::ceil(bits(m)) : 0};
  }
  Real p(Real s, bool exact) const {
    const Real p = std::exp2(8 + (bits(s) - r));
    return exact ? p : static_cast<Real>(round_as(DType::e4m3, p));
  }
};

/// l and O of one query. A sum of f32 over many keys drifts with the root of their number, or with the number itself if
/// the terms are equal. No path may be as bad as that, so the naive computation, the yardstick for the others, sums
/// 1024 keys at a time, and those sums in double.
template <class Real>
struct Sums {
  static constexpr std::int64_t kBlock = 1024;
  double l = 0, rounded_l = 0, o[kMaxHeadDim] = {};  // rounded_l: of P as they are multiplied, with V of e4m3
  Real block_l = 0, block_rounded_l = 0, block_o[kMaxHeadDim] = {};
  std::int64_t keys = 0;  // of the block

  void end_key(std::int64_t d_v) {
    if (++keys == kBlock) end_block(d_v);
  }
  void end_block(std::int64_t d_v) {
    l += block_l;
    rounded_l += block_rounded_l;
    for (std::int64_t d = 0; d < d_v; ++d) o[d] += block_o[d];
    for (std::int64_t d = 0; d < d_v; ++d) block_o[d] = 0;
    block_l = block_rounded_l = 0;
    keys = 0;
  }
};

template <class Real>
void attend(const Query<Real>& query) {
  const Attention& a = query.a;
  const Rounding& rounding = query.rounding;
  const Operands& x = query.x;
  const Real infinity = std::numeric_limits<Real>::infinity();
  const std::int64_t s_k = query.k_rows.length, row = query.q_rows.begin + query.i;

  Real m = -infinity;  // the largest score of a key; NaN when one is NaN
  for (std::int64_t j = 0; j < s_k; ++j) {
    if (!query.sees(j)) continue;
    const Real s = query.score(j);
    if (!(s <= m)) m = std::isnan(m) ? m : s;
  }
  const bool empty = m == -infinity;  // it sees no key, or all its scores are -inf: O = 0
  const Real sink = query.sink(), top = sink <= m || std::isnan(m) ? m : sink;

  const Bytes<Real> bytes = Bytes<Real>::of(a, m);
  Sums<Real> sums;
  for (std::int64_t j = 0; j < s_k && !empty; ++j) {
    if (!query.sees(j)) continue;  // skipped, not multiplied by 0: NaN in V of a masked key has no effect
    const Real s = query.score(j), p = std::exp(s - top);
    sums.block_l += p;
    if (const Real kept = query.kept(j); kept != 0) {
      const Real rounded = bytes.there            ? bytes.p(s, rounding.exact_p)
                           : p < rounding.least_p ? 0
                                                  : static_cast<Real>(round_as(rounding.p, p)) * kept;
      sums.block_rounded_l += rounded;
      const Real weight = is_of_bytes(a) ? rounded : rounded * query.scale_of(x.v_scale, j);
      const std::int64_t offset = query.key_offset(x.v, j);
      for (std::int64_t d = 0; d < a.d_v; ++d)
        sums.block_o[d] += weight * static_cast<Real>(load(x.v, offset + at(x.v, 3, d)));
    }
    sums.end_key(a.d_v);
  }
  sums.end_block(a.d_v);
  if (a.sinks) sums.l += static_cast<double>(std::exp(sink - top));  // NaN if neither it nor a key has a score
  if (a.sinks && bytes.there) sums.rounded_l += static_cast<double>(bytes.p(sink, true));
  const Real l = static_cast<Real>(sums.l), below = bytes.there ? static_cast<Real>(sums.rounded_l) : l;
  const Real factor = is_of_bytes(a) ? query.v_factor() : 1;

  const std::int64_t offset = at(x.o, query.q_rows.batch, row, query.h, 0);
  for (std::int64_t d = 0; d < a.d_v; ++d)
    store(x.o, offset + at(x.o, 3, d), round_as(rounding.o, empty ? 0 : static_cast<Real>(sums.o[d]) / below * factor));
  if (a.lse) store(x.lse, at(x.lse, query.q_rows.batch, query.h, row, 0), top == -infinity ? top : top + std::log(l));
  if (a.row_max)  // NaN for a row with a score of +inf, which has no softmax
    store(x.row_max, at(x.row_max, query.q_rows.batch, query.h, row, 0),
          m == infinity ? std::numeric_limits<Real>::quiet_NaN() : m);
  for (std::int64_t j = 0; a.probabilities && j < a.s_k; ++j) {
    const std::int64_t key = j - query.k_rows.first;
    const bool seen = !empty && key >= 0 && key < s_k && query.sees(key);
    store(x.probabilities, at(x.probabilities, query.b, query.h, query.i, j),
          seen ? std::exp(query.score(key) - top) / l : 0);
  }
}

template <class Real>
void attention_forward(const Attention& a, const Operands& x, Rounding rounding) {
  for (std::int64_t b = 0; b < a.b; ++b) {
    for (std::int64_t h = 0; h < a.h_q; ++h) {
      Query<Real> query = Query<Real>::of(a, x, b, h, rounding);
      for (std::int64_t i = 0; i < query.q_rows.length; ++i) {
        query.load_q(i);
        attend(query);
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
