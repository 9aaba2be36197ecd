// src/judge/norm.cpp: see norm.hpp.
#include "judge/norm.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/size.hpp"
#include "judge/compare.hpp"
#include "ref/elements.hpp"
#include "ref/norm.hpp"

namespace falchion::judge {
namespace {

constexpr Tensor NormOperands::*kOutputs[] = {&NormOperands::y, &NormOperands::residual_out, &NormOperands::mean,
                                              &NormOperands::rstd};
constexpr const char* kNames[] = {"y", "residual_out", "mean", "rstd"};

/// One row of the inputs, in double and in the naive computation's f32.
struct Row {
  const Norm& n;
  const NormOperands& x;
  std::int64_t b, s, h;

  double element(const Tensor& of, std::int64_t j) const { return ref::load(of, ref::at(of, b, s, h, j)); }
  double residual(std::int64_t j) const { return n.residual ? element(x.residual, j) : 0; }
  double weight(std::int64_t j) const { return n.weight ? (n.zero_centered ? 1 : 0) + element(x.weight, j) : 1; }
  double bias(std::int64_t j) const { return n.bias ? element(x.bias, j) : 0; }
  double v(std::int64_t j) const { return ref::norm_sum(element(x.x, j), residual(j)); }
  /// The magnitudes of the terms of v, if it is a sum: its rounding is relative to them.
  double terms(std::int64_t j) const { return n.residual ? std::abs(element(x.x, j)) + std::abs(residual(j)) : 0; }
  float naive_v(std::int64_t j) const { return static_cast<float>(element(x.x, j)) + static_cast<float>(residual(j)); }
};

struct Moments {
  double mean = 0, rstd = 0;
};

Moments exact_moments(const Row& row) {
  const auto d = static_cast<double>(row.n.d);
  Moments out;
  double squares = 0;
  for (std::int64_t j = 0; row.n.kind == NormKind::layer && j < row.n.d; ++j) out.mean += row.v(j);
  out.mean = row.n.kind == NormKind::layer ? out.mean / d : 0;
  for (std::int64_t j = 0; j < row.n.d; ++j) squares += (row.v(j) - out.mean) * (row.v(j) - out.mean);
  out.rstd = 1 / std::sqrt(squares / d + row.n.eps);
  return out;
}

/// In f32 with an unlimited exponent: the numbers of the row and the root of eps are multiplied by the power of two
/// that brings the largest of them to about 1, and the mean and rstd are divided by it in double.
struct NaiveMoments {
  double scale = 1;  // of the numbers whose mean and rstd these are
  float mean = 0, rstd = 0;

  float v(const Row& row, std::int64_t j) const { return static_cast<float>(row.naive_v(j) * scale); }
};

double naive_scale(const Row& row) {
  double most = std::sqrt(double{row.n.eps});
  for (std::int64_t j = 0; j < row.n.d; ++j) most = std::max(most, std::abs(double{row.naive_v(j)}));
  int exponent = 0;
  if (std::isfinite(most)) std::frexp(most, &exponent);
  return std::ldexp(1.0, -exponent);
}

NaiveMoments naive_moments(const Row& row) {
  const auto d = static_cast<float>(row.n.d);
  NaiveMoments out;
  out.scale = naive_scale(row);
  float squares = 0;
  for (std::int64_t j = 0; row.n.kind == NormKind::layer && j < row.n.d; ++j) out.mean += out.v(row, j);
  out.mean = row.n.kind == NormKind::layer ? out.mean / d : 0;
  for (std::int64_t j = 0; j < row.n.d; ++j) {
    const float by = out.v(row, j) - out.mean;
    squares += by * by;
  }
  out.rstd = 1 / std::sqrt(squares / d + static_cast<float>(row.n.eps * out.scale * out.scale));
  return out;
}

template <class F>
void for_each_row(const Norm& n, const NormOperands& x, const F& f) {
  const auto& shape = x.x.shape;
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t s = 0; s < shape[1]; ++s)
      for (std::int64_t h = 0; h < shape[2]; ++h) f(Row{n, x, b, s, h});
}

void put(const Row& row, const Tensor& to, std::int64_t j, double value) {
  ref::store(to, ref::at(to, row.b, row.s, row.h, j), value);
}

DType or_else(DType own, DType of_x) { return own == DType::as_q ? of_x : own; }

}  // namespace

NormReference::NormReference(const Norm& problem, const NormOperands& x) : problem_(problem), inputs_(x) {
  exact_ = empty();
  ref::norm(problem_, exact_.view);
  naive_ = empty();
  granted_ = empty();
  make_naive();
}

NormReference::Result NormReference::empty() const {
  Result out;
  out.view = inputs_;
  for (std::size_t i = 0; i < std::size(kOutputs); ++i) {
    Tensor& view = out.view.*kOutputs[i];
    const auto& shape = view.shape;
    out.memory[i].resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    view = Tensor::dense(out.memory[i].data(), DType::f32, shape);
  }
  return out;
}

void NormReference::make_naive() {
  const DType of_y = or_else(problem_.dtype_y, problem_.dtype);
  const DType of_residual = or_else(problem_.dtype_residual, problem_.dtype);
  for_each_row(problem_, inputs_, [&](const Row& row) {
    const Norm& n = problem_;
    const Moments m = exact_moments(row);
    const NaiveMoments by_naive = naive_moments(row);
    // With such an eps the numbers are not scaled, so the mean has no digits below f32's smallest number.
    const double coarse = n.kind == NormKind::layer && n.eps >= 0x1p-104F ? 0x1p-149 : 0;
    double terms = 0;
    for (std::int64_t j = 0; j < n.d; ++j) {
      const double z = (row.v(j) - m.mean) * m.rstd, weight = std::abs(row.weight(j)), term = row.terms(j);
      terms += term / static_cast<double>(n.d);
      const double off = 2 * std::abs(z) + term * m.rstd * (1 + std::abs(z));
      put(row, granted_.view.y, j, kSum * (off * weight + std::abs(row.bias(j))) + coarse * m.rstd * weight);
      float y = (by_naive.v(row, j) - by_naive.mean) * by_naive.rstd;
      if (n.weight) y *= (n.zero_centered ? 1.F : 0.F) + static_cast<float>(row.element(row.x.weight, j));
      if (n.bias) y += static_cast<float>(row.bias(j));
      put(row, naive_.view.y, j, ref::round_as(of_y, y));
      if (n.residual_out) put(row, naive_.view.residual_out, j, ref::round_as(of_residual, row.naive_v(j)));
    }
    if (n.mean) {
      put(row, naive_.view.mean, 0, by_naive.mean / by_naive.scale);
      put(row, granted_.view.mean, 0, kSum * (std::abs(m.mean) + terms + 1 / m.rstd));
    }
    if (n.rstd) {
      put(row, naive_.view.rstd, 0, by_naive.rstd * by_naive.scale);
      put(row, granted_.view.rstd, 0, kSum * m.rstd * (2 + terms * m.rstd));
    }
  });
}

std::string NormReference::check(const NormOperands& got) const {
  const bool wanted[] = {true, problem_.residual_out, problem_.mean, problem_.rstd};
  const auto& shape = inputs_.x.shape;
  for (std::size_t i = 0; i < std::size(kOutputs); ++i)
    for (std::int64_t b = 0; wanted[i] && b < shape[0]; ++b)
      for (std::int64_t s = 0; s < shape[1]; ++s)
        for (std::int64_t h = 0; h < shape[2]; ++h)
          if (std::string why = check_row(i, got.*kOutputs[i], {b, s, h, 0}); !why.empty()) return why;
  return "";
}

std::string NormReference::check_row(std::size_t output, const Tensor& got,
                                     const std::array<std::int64_t, 4>& first) const {
  const auto row_of = [&](const Tensor& x) {
    Tensor row = x;
    const std::int64_t offset = ref::at(x, first[0], first[1], first[2], 0);
    row.data = static_cast<char*>(x.data) + offset * static_cast<std::int64_t>(size_of(x.dtype));
    row.shape = {1, 1, 1, x.shape[3]};
    return row;
  };
  const std::string name = kNames[output] + (" of " + where("row ", first)) + " at ";
  const Tensor value = row_of(got);
  Comparison comparison(name.c_str());
  double largest = 0;
  const auto all = [](const auto&) { return true; };
  const auto none = [](const auto&, double, double) { return false; };
  comparison.run(row_of(exact_.view.*kOutputs[output]), row_of(naive_.view.*kOutputs[output]), value, all, none,
                 [&](const auto&, double exact) { largest = std::max(largest, std::abs(exact)); });
  ErrorReport& report = comparison.report;
  report.unit = unit_at(value.dtype, largest);
  const Tensor granted = row_of(granted_.view.*kOutputs[output]);
  for (std::int64_t j = 0; j < granted.shape[3]; ++j) {
    const double grant = ref::load(granted, ref::at(granted, 3, j));
    if (std::isfinite(grant)) report.granted = std::max(report.granted, grant);
  }
  if (report.same_specials) comparison.conclude();
  return report.why;
}

}  // namespace falchion::judge
