// src/judge/gemm.cpp: see gemm.hpp.
#include "judge/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "judge/compare.hpp"
#include "judge/nudge.hpp"
#include "judge/promoted_sums.hpp"
#include "judge/words.hpp"
#include "ref/elements.hpp"
#include "ref/gemm.hpp"

namespace falchion::judge {
namespace {

using Index = std::array<std::int64_t, 4>;

DType dtype_of_d(const Gemm& g) { return g.dtype_d == DType::as_q ? g.dtype : g.dtype_d; }

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

float activated(Activation activation, float x) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::relu: return x < 0 ? 0 : x;
    case Activation::gelu_tanh: return x * sigmoid(1.59576912F * (x + 0.044715F * x * x * x));
    case Activation::gelu_erf: return 0.5F * x * std::erfc(-x * std::numbers::sqrt2_v<float> / 2);
    case Activation::silu:
    case Activation::swiglu: return x * sigmoid(x);
  }
  return x;
}

/// The sum of a part of the products of row at[1] of A and row `column` of B, summed as a Sum.
template <class Sum>
float naive_sum(const GemmOperands& x, const Index& at, std::int64_t column, const ref::ScaledPart& part) {
  Sum z = 0;
  ref::each_of_k(x, part.first, part.end, [&](std::int64_t k, std::int64_t l) {
    z += static_cast<Sum>(ref::load(x.a, ref::at(x.a, at[0], at[1], k, l)) *
                          ref::load(x.b, ref::at(x.b, at[0], column, k, l)));
  });
  return static_cast<float>(z);
}

/// alpha s_a s_b A B^T of the naive computation. s_a s_b is formed only for scales of blocks, of which each part has
/// its own.
float naive_product(const Gemm& g, const GemmOperands& x, const Index& at, std::int64_t column) {
  float product = 0, factor = g.alpha;
  ref::each_scaled_part(g, x, at[0], at[1], column, [&](const ref::ScaledPart& part) {
    const float sum =
        g.dtype == DType::i8 ? naive_sum<std::int64_t>(x, at, column, part) : naive_sum<float>(x, at, column, part);
    if (g.scaling == Scaling::block128) {
      product += part.scale_a * part.scale_b * sum;
    } else {
      product = part.scale_b * sum;
      factor *= part.scale_a;
    }
  });
  return product * factor;
}

/// Z of the naive computation.
float naive_z(const Gemm& g, const GemmOperands& x, const Index& at, std::int64_t column) {
  float z = g.alpha != 0 ? naive_product(g, x, at, column) : 0;
  if (g.beta != 0) z += g.beta * ref::load(x.c, ref::at(x.c, at[0], at[1], at[2], at[3]));
  if (g.bias_n) z += ref::load(x.bias_n, ref::at(x.bias_n, 0, 0, 0, column));
  if (g.bias_m) z += ref::load(x.bias_m, ref::at(x.bias_m, at[0], at[1], 0, 0));
  return z;
}

/// The largest change of D at one element if Z (with swiglu the gate's) changes by up to `by` and "up" by up to
/// `up_by`.
double moved(Activation activation, double z, double by, double up, double up_by) {
  const double right = ref::activated(activation, z) * up;
  double most = 0;
  for (const double moved_z : {z - by, z + by})
    for (const double moved_up : {up - up_by, up + up_by})
      most = std::max(most, std::abs(ref::activated(activation, moved_z) * moved_up - right));
  return most + kSum * std::abs(right);  // and the roundings of the steps after Z
}

double value_at(const Tensor& x, const Index& at) {
  const std::int64_t offset = ref::at(x, at[0], at[1], at[2], at[3]);
  return x.dtype == DType::i32 ? static_cast<const std::int32_t*>(x.data)[offset] : ref::load(x, offset);
}

}  // namespace

GemmReference::GemmReference(const Gemm& problem, const GemmOperands& x) : problem_(problem), inputs_(x) {
  exact_ = definition(problem_, inputs_);
  naive_ = naive();
  for_each_index(exact_.view.shape, [&](const Index& at) {
    const double exact = value_at(exact_.view, at), value = value_at(naive_.view, at);
    if (std::isfinite(exact)) largest_ = std::max(largest_, std::abs(exact));
    if (std::isfinite(exact) && std::isfinite(value)) naive_error_ = std::max(naive_error_, std::abs(value - exact));
  });
}

GemmReference::Result GemmReference::empty(const Index& shape, DType dtype) const {
  Result out;
  out.memory.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  out.view = Tensor::dense(out.memory.data(), dtype, shape);
  return out;
}

GemmReference::Result GemmReference::definition(const Gemm& problem, const GemmOperands& inputs) const {
  Result out = empty(inputs.d.shape, dtype_of_d(problem) == DType::i32 ? DType::i32 : DType::f32);
  GemmOperands x = inputs;
  x.d = out.view;
  ref::gemm(problem, x);
  return out;
}

GemmReference::Result GemmReference::naive() const {
  if (dtype_of_d(problem_) == DType::i32) return definition(problem_, inputs_);  // nothing is rounded
  Result out = empty(inputs_.d.shape, DType::f32);
  const Gemm& g = problem_;
  const GemmOperands& x = inputs_;
  const std::int64_t n1 = x.d.shape[3];
  std::size_t place = 0;
  for_each_index(x.d.shape, [&](const Index& at) {
    const std::int64_t j = at[2] * n1 + at[3];
    float d = activated(g.activation, naive_z(g, x, at, j));
    if (g.activation == Activation::swiglu) d *= naive_z(g, x, at, g.n + j);
    if (g.residual) d += ref::load(x.residual, ref::at(x.residual, at[0], at[1], at[2], at[3]));
    out.memory[place++] = static_cast<float>(ref::round_as(dtype_of_d(g), d));
  });
  return out;
}

GemmReference::Result GemmReference::magnitudes(Gemm g, GemmOperands x) const {
  const Magnitudes a(x.a), b(x.b), c(x.c), bias_n(x.bias_n), bias_m(x.bias_m), scale_a(x.scale_a), scale_b(x.scale_b);
  x.c = c.view();
  x.bias_n = bias_n.view();
  x.bias_m = bias_m.view();
  g.alpha = std::abs(g.alpha);
  g.beta = std::abs(g.beta);
  if (g.dtype == DType::i8) {  // its sums are exact, so each is one term
    Gemm product = g, rest = g;
    product.beta = 0;
    product.bias_n = product.bias_m = false;
    rest.alpha = 0;
    Result out = definition(product, x);
    const Result others = definition(rest, x);
    for (std::size_t i = 0; i < out.memory.size(); ++i) out.memory[i] = std::abs(out.memory[i]) + others.memory[i];
    return out;
  }
  x.a = a.view();
  x.b = b.view();
  x.scale_a = scale_a.view();
  x.scale_b = scale_b.view();
  return definition(g, x);
}

std::vector<double> GemmReference::cut_off_of(const Gemm& sums, const GemmOperands& x) const {
  std::vector<double> out;
  for_each_index(x.d.shape, [&](const Index& at) {
    const std::int64_t column = at[2] * x.d.shape[3] + at[3];
    const double alpha = sums.alpha;
    CutOff off;
    if (alpha != 0) {
      ref::each_scaled_part(sums, x, at[0], at[1], column, [&](const ref::ScaledPart& part) {
        const double factor = alpha * part.scale_a * part.scale_b;
        if (factor == 0) return;
        const CutOff of_part = cut_off(x, at, column, part.first, part.end);
        off.mean += factor * of_part.mean;
        off.variance += factor * factor * of_part.variance;
      });
    }
    out.push_back(off.most());
  });
  return out;
}

double GemmReference::granted(Sums of) const {
  const bool promoted = of == Sums::promoted && problem_.dtype == DType::e4m3;
  double& largest = granted_[promoted ? 1 : 0];
  if (largest >= 0) return largest;
  const Gemm& g = problem_;
  const bool swiglu = g.activation == Activation::swiglu;
  Gemm sums = g;  // Z alone, with "up" in the second n columns
  sums.activation = Activation::none;
  sums.residual = false;
  if (swiglu) sums.n = 2 * g.n;
  GemmOperands x = inputs_;
  if (swiglu) x.d.shape = {g.batch, g.m, 1, sums.n};
  const Result z = definition(sums, x);
  const Result terms = magnitudes(sums, x);
  const std::vector<double> cut = promoted ? cut_off_of(sums, x) : std::vector<double>(z.memory.size());
  const double share = kSum * (g.dtype == DType::i8 ? 1 : std::sqrt(std::max(1.0, static_cast<double>(g.k) / 64)));
  const auto columns = static_cast<std::size_t>(g.n);
  const auto off_by = [&](std::size_t at) { return share * terms.memory[at] + cut[at]; };
  largest = 0;
  for (std::size_t place = 0; place < exact_.memory.size(); ++place) {
    const std::size_t at = swiglu ? place / columns * 2 * columns + place % columns : place, up = at + columns;
    double by = swiglu ? moved(g.activation, z.memory[at], off_by(at), z.memory[up], off_by(up))
                       : moved(g.activation, z.memory[at], off_by(at), 1, 0);
    // The factor of x in an activation loses its last bits below 2^-126: a GELU of -2.8e-44 was computed as -3.9e-44.
    const double times = swiglu ? std::max(1.0, std::abs(static_cast<double>(z.memory[up]))) : 1;
    if (g.activation != Activation::none && g.activation != Activation::relu)
      by += std::abs(z.memory[at]) * 0x1p-149 * times;
    if (std::isfinite(by)) largest = std::max(largest, by);
  }
  return largest;
}

bool GemmReference::may_cancel(const Index& at) const {
  if (problem_.scaling == Scaling::none || problem_.alpha == 0) return false;
  const std::int64_t column = at[2] * inputs_.d.shape[3] + at[3];
  const auto may = [&](std::int64_t j) {
    bool any = false;
    ref::each_scaled_part(problem_, inputs_, at[0], at[1], j, [&](const ref::ScaledPart& part) {
      const double by = static_cast<double>(problem_.alpha) * part.scale_a * part.scale_b;
      const double lost = cut_off(inputs_, at, j, part.first, part.end).most();
      any = any || (!std::isfinite(by) && lost > 0 && std::abs(naive_sum<double>(inputs_, at, j, part)) <= 2 * lost);
    });
    return any;
  };
  return may(column) || (problem_.activation == Activation::swiglu && may(problem_.n + column));
}

ErrorReport GemmReference::check(const Tensor& got, Sums sums) const {
  const DType dtype = dtype_of_d(problem_);
  ErrorReport report;
  report.naive_error = naive_error_;
  const bool exact_sums = dtype == DType::i32;
  report.unit = exact_sums ? 0 : unit_at(dtype, largest_);
  Index worst{};
  for_each_index(exact_.view.shape, [&](const Index& at) {
    const double value = value_at(got, at), exact = value_at(exact_.view, at), naive = value_at(naive_.view, at);
    const bool as_naive = !std::isfinite(naive) && (std::isnan(naive) ? std::isnan(value) : value == naive);
    const bool any_infinity = sums == Sums::promoted && problem_.dtype == DType::e4m3 && !std::isfinite(value) &&
                              !std::isfinite(exact) && may_cancel(at);
    if (!same_special(dtype, value, exact) && !as_naive && !any_infinity) {
      report.same_specials = false;
      if (report.why.empty()) report.why = mismatch("d", at, value, exact);
    }
    if (!std::isfinite(value) || !std::isfinite(exact) || std::abs(value - exact) <= report.error) return;
    report.error = std::abs(value - exact);
    worst = at;
  });
  if (report.error > report.limit() && !exact_sums) report.granted = granted(sums);
  if (report.why.empty() && report.error > report.limit())
    report.why = where("d", worst) + " is off by " + number(report.error) + ", over the limit of " +
                 number(report.limit()) + ": it is " + number(value_at(got, worst)) + ", must be " +
                 number(value_at(exact_.view, worst));
  return report;
}

}  // namespace falchion::judge
