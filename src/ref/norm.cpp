// src/ref/norm.cpp: the definition of a norm. It is naive on purpose: one row after the other, in double.
#include "ref/norm.hpp"

#include <cmath>
#include <cstdint>

#include "ref/elements.hpp"

namespace falchion::ref {
namespace {

struct Row {
  const Norm& norm;
  const NormOperands& x;
  std::int64_t b, s, h;

  double element(const Tensor& of, std::int64_t j) const { return load(of, at(of, b, s, h, j)); }
  double v(std::int64_t j) const { return norm_sum(element(x.x, j), norm.residual ? element(x.residual, j) : 0); }
  double mean() const {
    double sum = 0;
    for (std::int64_t j = 0; j < norm.d; ++j) sum += v(j);
    return sum / static_cast<double>(norm.d);
  }
  double mean_square(double mean) const {
    double sum = 0;
    for (std::int64_t j = 0; j < norm.d; ++j) sum += (v(j) - mean) * (v(j) - mean);
    return sum / static_cast<double>(norm.d);
  }
};

void norm_row(const Row& row) {
  const Norm& n = row.norm;
  const NormOperands& x = row.x;
  const auto place = [&](const Tensor& of, std::int64_t j) { return at(of, row.b, row.s, row.h, j); };
  const double mean = n.kind == NormKind::layer ? row.mean() : 0;
  const double rstd = 1 / std::sqrt(row.mean_square(mean) + n.eps);
  if (n.mean) store(x.mean, place(x.mean, 0), mean);
  if (n.rstd) store(x.rstd, place(x.rstd, 0), rstd);
  for (std::int64_t j = 0; j < n.d; ++j) {
    const double v = row.v(j);  // y and residual_out may overwrite it
    double y = (v - mean) * rstd;
    if (n.weight) y *= (n.zero_centered ? 1 : 0) + row.element(x.weight, j);
    if (n.bias) y += row.element(x.bias, j);
    if (n.residual_out) store(x.residual_out, place(x.residual_out, j), v);
    store(x.y, place(x.y, j), y);
  }
}

}  // namespace

void norm(const Norm& n, const NormOperands& x) noexcept {
  for (std::int64_t b = 0; b < x.x.shape[0]; ++b)
    for (std::int64_t s = 0; s < x.x.shape[1]; ++s)
      for (std::int64_t h = 0; h < x.x.shape[2]; ++h) norm_row({n, x, b, s, h});
}

}  // namespace falchion::ref
