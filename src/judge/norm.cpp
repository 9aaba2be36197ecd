// src/judge/norm.cpp: see norm.hpp.
#include "judge/norm.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "judge/compare.hpp"
#include "ref/elements.hpp"
#include "ref/norm.hpp"

namespace falchion::judge {
namespace {

/// One row of the inputs, in double and in the naive computation's f32.
struct Row : NormRow {
  double residual(std::int64_t j) const { return n.residual ? element(x.residual, j) : 0; }
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
  double largest = 0;
  for (std::int64_t j = 0; j < row.n.d; ++j) largest = std::max(largest, std::abs(double{row.naive_v(j)}));
  return norm_naive_scale(row.n.eps, largest);
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

DType or_else(DType own, DType of_x) { return own == DType::as_q ? of_x : own; }

}  // namespace

NormReference::NormReference(const Norm& problem, const NormOperands& x)
    : NormRowsReference(problem, x,
                        {{"y", &NormOperands::y, true},
                         {"residual_out", &NormOperands::residual_out, problem.residual_out},
                         {"mean", &NormOperands::mean, problem.mean},
                         {"rstd", &NormOperands::rstd, problem.rstd}}) {
  ref::norm(problem_, exact_.view);
  make_naive();
}

void NormReference::make_naive() {
  const DType of_y = or_else(problem_.dtype_y, problem_.dtype);
  const DType of_residual = or_else(problem_.dtype_residual, problem_.dtype);
  for_each_row<Row>(problem_, inputs_, [&](const Row& row) {
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
      row.put(granted_.view.y, j, kSum * (off * weight + std::abs(row.bias(j))) + coarse * m.rstd * weight);
      float y = (by_naive.v(row, j) - by_naive.mean) * by_naive.rstd;
      if (n.weight) y *= (n.zero_centered ? 1.F : 0.F) + static_cast<float>(row.element(row.x.weight, j));
      if (n.bias) y += static_cast<float>(row.bias(j));
      row.put(naive_.view.y, j, ref::round_as(of_y, y));
      if (n.residual_out) row.put(naive_.view.residual_out, j, ref::round_as(of_residual, row.naive_v(j)));
    }
    if (n.mean) {
      row.put(naive_.view.mean, 0, by_naive.mean / by_naive.scale);
      row.put(granted_.view.mean, 0, kSum * (std::abs(m.mean) + terms + 1 / m.rstd));
    }
    if (n.rstd) {
      row.put(naive_.view.rstd, 0, by_naive.rstd * by_naive.scale);
      row.put(granted_.view.rstd, 0, kSum * m.rstd * (2 + terms * m.rstd));
    }
  });
}

}  // namespace falchion::judge
