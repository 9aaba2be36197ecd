// src/ref/attention_backward.cpp: the definition of the gradients of attention. It is naive on purpose: each output is
// computed separately, with every probability recomputed for it.
#include "ref/attention_backward.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ref/query.hpp"

namespace falchion::ref {
namespace {

/// The contributions of one pair of a query and a key to the gradients.
template <class Real>
struct Pair {
  Real p = 0;   // r P, rounded: the factor of grad_o in grad_v
  Real g = 0;   // the gradient of the score
  Real ds = 0;  // the gradient of scale q . k, rounded: the factor of k in grad_q, and of q in grad_k
};

/// One query row of the backward pass.
template <class Real>
struct GradientRow : Query<Real> {
  using Query<Real>::a, Query<Real>::x, Query<Real>::b, Query<Real>::h, Query<Real>::i, Query<Real>::q_rows,
      Query<Real>::k_rows, Query<Real>::rounding, Query<Real>::sign_of;
  Real grad_o[kMaxHeadDim] = {};
  Real lse = 0, d = 0;  // d is grad_o . o - grad_lse

  GradientRow(const Attention& problem, const Operands& operands, Rounding how, std::int64_t batch, std::int64_t head)
      : Query<Real>(Query<Real>::of(problem, operands, batch, head, how)) {}

  void load(std::int64_t row) {
    this->load_q(row);
    const std::int64_t at_row = q_rows.begin + row;
    const std::int64_t from_grad = at(x.grad_o, q_rows.batch, at_row, h, 0),
                       from_o = at(x.o, q_rows.batch, at_row, h, 0);
    d = a.grad_lse ? -static_cast<Real>(load_at(x.grad_lse, q_rows.batch, h, at_row)) : 0;
    for (std::int64_t e = 0; e < a.d_v; ++e) {
      grad_o[e] = ref::load(x.grad_o, from_grad + at(x.grad_o, 3, e));
      d += grad_o[e] * static_cast<Real>(ref::load(x.o, from_o + at(x.o, 3, e)));
    }
    lse = load_at(x.lse, q_rows.batch, h, at_row);
  }
  /// sums += factor k_j
  void add_key(std::int64_t j, Real factor, Real* sums) const {
    const std::int64_t offset = at(x.k, k_rows.batch, k_rows.begin + j, this->h_kv(), 0);
    for (std::int64_t e = 0; e < a.d_qk; ++e)
      sums[e] += term(factor * static_cast<Real>(ref::load(x.k, offset + at(x.k, 3, e))));
  }
  bool counts() const { return lse != -std::numeric_limits<Real>::infinity(); }
  /// Whether the row sees the key, so that the pair has gradients at all.
  bool has(std::int64_t j) const { return counts() && this->sees(j); }

  Pair<Real> pair(std::int64_t j) const {
    const Real dot = this->dot(j), exact = std::exp(this->score(j, dot) - lse), kept = this->kept(j);
    const Real p = exact < static_cast<Real>(rounding.least_p) ? 0 : exact;
    const Real grad_p =
        kept == 0 ? 0 : kept * this->dot(grad_o, x.v, j, a.d_v, 4);  // also if V of a dropped key is NaN
    const Real rounded = static_cast<Real>(round_as(rounding.p, p)), slope = softcap_slope(dot, j);
    Real of_ds = (rounding.p_in_ds ? rounded : p) * (grad_p - d) * slope;
    if (std::abs(of_ds) > static_cast<Real>(rounding.most_ds)) of_ds = std::numeric_limits<Real>::quiet_NaN();
    return {.p = moved(rounded, 0, j) * kept,
            .g = p * (grad_p - d),
            .ds = moved(static_cast<Real>(round_as(rounding.ds, of_ds)), 1, j)};
  }
  /// A term of a sum, or its magnitude if the rounding asks for magnitudes.
  Real term(Real x) const { return rounding.magnitudes ? std::abs(x) : x; }

 private:
  /// The derivative of the softcap, from 0 to 1.
  Real softcap_slope(Real dot, std::int64_t j) const {
    if (!(this->mod.softcap > 0)) return 1;
    const Real slope = this->mod.grad(dot) / this->mod.scale;
    if (slope < static_cast<Real>(rounding.least_slope)) return 0;
    return slope + static_cast<Real>(sign_of(2, j) * rounding.slope_step);
  }
  /// One of the two numbers of a pair, moved a step up or down if the rounding says so.
  Real moved(Real number, std::uint64_t which, std::int64_t j) const {
    if (rounding.step == 0) return number;
    const double sign = sign_of(which, j);
    return static_cast<Real>(number * (1 + sign * rounding.step) + sign * rounding.least_step);
  }
  static float load_at(const Tensor& statistic, std::int64_t batch, std::int64_t head, std::int64_t row) {
    return ref::load(statistic, at(statistic, batch, head, row, 0));
  }
};

template <class Real>
class Gradients {
 public:
  Gradients(const Attention& a, const Operands& x, Rounding rounding) : a(a), x(x), rounding(rounding) {}

  void run() const {
    const bool want_q = (a.frozen & 1) == 0 && x.q.shape[1] > 0;
    const bool want_kv = (a.frozen & 2) == 0 && x.k.shape[1] > 0;
    if (a.zero_unused && want_q) clear(x.grad_q);
    if (a.zero_unused && want_kv) clear(x.grad_k);
    if (a.zero_unused && want_kv) clear(x.grad_v);
    for (std::int64_t b = 0; (want_q || want_kv) && b < a.b; ++b) {
      for (std::int64_t h = 0; want_q && h < a.h_q; ++h) find_grad_q(b, h);
      for (std::int64_t h = 0; want_kv && h < a.h_k; ++h) find_grad_kv(b, h);
    }
    if (a.grad_bias) find_grad_bias();
    if (a.grad_alibi) find_of_heads(x.grad_alibi, [&](auto b, auto h) { return sum_of_slope(b, h); });
    if (a.grad_sinks) find_of_heads(x.grad_sinks, [&](auto b, auto h) { return sum_of_sink(b, h); });
  }

 private:
  GradientRow<Real> row_of(std::int64_t b, std::int64_t h) const { return {a, x, rounding, b, h}; }
  /// The sequences that may have queries. Where q has no row, b may be any number, too many to go through.
  std::int64_t sequences() const { return x.q.shape[1] == 0 ? 0 : a.b; }

  void find_grad_q(std::int64_t b, std::int64_t h) const {
    GradientRow<Real> row = row_of(b, h);
    for (std::int64_t i = 0; i < row.q_rows.length; ++i) {
      row.load(i);
      Real sums[kMaxHeadDim] = {};
      for (std::int64_t j = 0; j < row.k_rows.length; ++j) {
        if (row.has(j)) row.add_key(j, row.pair(j).ds * row.mod.scale, sums);
      }
      put(x.grad_q, at(x.grad_q, row.q_rows.batch, row.q_rows.begin + i, h, 0), a.d_qk, sums);
    }
  }

  /// The sums of a few keys, so that a query row is loaded once for all of them.
  struct KeySums {
    static constexpr std::int64_t kKeys = 16;
    Real of_k[kKeys][kMaxHeadDim] = {}, of_v[kKeys][kMaxHeadDim] = {};
  };

  /// grad_k and grad_v of one K/V head, summed over the query heads that share it.
  void find_grad_kv(std::int64_t b, std::int64_t h_kv) const {
    const std::int64_t group = a.h_q / a.h_k;
    const Rows keys = keys_of(a, x, b);
    for (std::int64_t first = 0; first < keys.length; first += KeySums::kKeys) {
      const std::int64_t past = std::min(first + KeySums::kKeys, keys.length);
      KeySums sums;
      for (std::int64_t h = h_kv * group; h < (h_kv + 1) * group; ++h) add_row_sums(b, h, first, past, &sums);
      for (std::int64_t j = first; j < past; ++j) {
        put(x.grad_k, at(x.grad_k, keys.batch, keys.begin + j, h_kv, 0), a.d_qk, sums.of_k[j - first]);
        put(x.grad_v, at(x.grad_v, keys.batch, keys.begin + j, h_kv, 0), a.d_v, sums.of_v[j - first]);
      }
    }
  }
  void add_row_sums(std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t past, KeySums* sums) const {
    GradientRow<Real> row = row_of(b, h);
    for (std::int64_t i = 0; i < row.q_rows.length; ++i) {
      row.load(i);
      for (std::int64_t j = first; j < past; ++j) {
        if (!row.has(j)) continue;
        const Pair<Real> pair = row.pair(j);
        Real *of_k = sums->of_k[j - first], *of_v = sums->of_v[j - first];
        const Real of_q = pair.ds * row.mod.scale;
        for (std::int64_t e = 0; e < a.d_qk; ++e) of_k[e] += row.term(of_q * row.q[e]);
        if (row.kept(j) == 0) continue;
        for (std::int64_t e = 0; e < a.d_v; ++e) of_v[e] += row.term(pair.p * row.grad_o[e]);
      }
    }
  }

  /// Each element of grad_bias is the sum over the axes on which it is broadcast.
  void find_grad_bias() const {
    const Tensor& to = x.grad_bias;
    for (std::int64_t b = 0; b < to.shape[0]; ++b)
      for (std::int64_t h = 0; h < to.shape[1]; ++h)
        for (std::int64_t i = 0; i < to.shape[2]; ++i)
          for (std::int64_t j = 0; j < to.shape[3]; ++j) put_one(to, at(to, b, h, i, j), sum_of_bias({b, h, i, j}));
  }
  Real sum_of_bias(const std::array<std::int64_t, 4>& index) const {
    const auto first = [&](int axis) {
      return x.grad_bias.shape[axis] == 1 ? 0 : index[static_cast<std::size_t>(axis)];
    };
    const auto past = [&](int axis, std::int64_t all) { return x.grad_bias.shape[axis] == 1 ? all : first(axis) + 1; };
    Real sum = 0;
    for (std::int64_t b = first(0); b < past(0, sequences()); ++b) {
      for (std::int64_t h = first(1); h < past(1, a.h_q); ++h) {
        GradientRow<Real> row = row_of(b, h);
        for (std::int64_t i = first(2); i < std::min(past(2, a.s_q), row.q_rows.length); ++i) {
          row.load(i);
          for (std::int64_t column = first(3); column < past(3, a.s_k); ++column) {
            const std::int64_t j = column - row.k_rows.first;
            if (j >= 0 && j < row.k_rows.length && row.has(j)) sum += row.term(row.pair(j).g);
          }
        }
      }
    }
    return sum;
  }

  /// One number a head, which all sequences share where `to` has one for them all.
  template <class Sum>
  void find_of_heads(const Tensor& to, const Sum& sum_of) const {
    for (std::int64_t entry = 0; entry < to.shape[0]; ++entry) {
      for (std::int64_t h = 0; h < a.h_q; ++h) {
        Real sum = 0;
        const std::int64_t past = to.shape[0] == 1 ? sequences() : entry + 1;
        for (std::int64_t b = entry; b < past; ++b) sum += sum_of(b, h);
        put_one(to, at(to, entry, 0, h, 0), sum);
      }
    }
  }
  Real sum_of_slope(std::int64_t b, std::int64_t h) const {
    GradientRow<Real> row = row_of(b, h);
    Real sum = 0;
    for (std::int64_t i = 0; i < row.q_rows.length; ++i) {
      row.load(i);
      for (std::int64_t j = 0; j < row.k_rows.length; ++j) {
        if (row.has(j)) sum -= row.term(row.pair(j).g * std::abs(row.distance(j)));
      }
    }
    return sum;
  }

  /// The sink has no row of V, so dP is 0 and G = -P D.
  Real sum_of_sink(std::int64_t b, std::int64_t h) const {
    GradientRow<Real> row = row_of(b, h);
    Real sum = 0;
    for (std::int64_t i = 0; i < row.q_rows.length; ++i) {
      row.load(i);
      if (row.counts()) sum -= row.term(std::exp(row.sink() - row.lse) * row.d);
    }
    return sum;
  }

  void put(const Tensor& to, std::int64_t offset, std::int64_t d, const Real* sums) const {
    for (std::int64_t e = 0; e < d; ++e) put_one(to, offset + at(to, 3, e), sums[e], rounding.o);
  }
  void put_one(const Tensor& to, std::int64_t offset, Real value, DType rounded_to = DType::f32) const {
    const double before = a.grads == Grads::accumulate ? load(to, offset) : 0;
    store(to, offset, round_as(rounded_to, before + static_cast<double>(value)));
  }
  static void clear(const Tensor& to) {
    for (std::int64_t b = 0; b < to.shape[0]; ++b)
      for (std::int64_t s = 0; s < to.shape[1]; ++s)
        for (std::int64_t h = 0; h < to.shape[2]; ++h)
          for (std::int64_t e = 0; e < to.shape[3]; ++e) store(to, at(to, b, s, h, e), 0);
  }

  const Attention& a;
  const Operands& x;
  const Rounding rounding;
};

}  // namespace

void attention_backward(const Attention& problem, const Operands& operands, Rounding rounding) noexcept {
  if (rounding.single_precision) {
    Gradients<float>(problem, operands, rounding).run();
  } else {
    Gradients<double>(problem, operands, rounding).run();
  }
}

}  // namespace falchion::ref
