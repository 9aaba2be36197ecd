// src/judge/norm_backward.cpp: see norm_backward.hpp.
#include "judge/norm_backward.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "judge/compare.hpp"
#include "ref/elements.hpp"
#include "ref/norm_backward.hpp"

namespace falchion::judge {
namespace {

struct Row : NormRow {
  double grad_y(std::int64_t j) const { return element(x.grad_y, j); }
  double residual(std::int64_t j) const { return n.residual_out ? element(x.grad_residual_out, j) : 0; }
};

/// The statistics of a row in the type Number: of its numbers times scale, so that they have no overflow or underflow
/// of squares. In double the scale is 1.
template <class Number>
struct Statistics {
  double scale = 1;
  Number mean = 0, rstd = 0, of_g = 0, of_gz = 0;  // the last two: the means of g and g z

  Number z(const Row& row, std::int64_t j) const {
    return (static_cast<Number>(row.element(row.x.x, j) * scale) - mean) * rstd;
  }
  static Number g(const Row& row, std::int64_t j) {
    return static_cast<Number>(row.grad_y(j)) * static_cast<Number>(row.weight(j));
  }
  static Statistics of(const Row& row, double scale) {
    const auto d = static_cast<Number>(row.n.d);
    const bool layer = row.n.kind == NormKind::layer;
    Statistics out;
    out.scale = scale;
    Number sum = 0, squares = 0, of_g = 0, of_gz = 0;
    for (std::int64_t j = 0; layer && j < row.n.d; ++j) sum += static_cast<Number>(row.element(row.x.x, j) * scale);
    out.mean = sum / d;
    for (std::int64_t j = 0; j < row.n.d; ++j) {
      const Number by = static_cast<Number>(row.element(row.x.x, j) * scale) - out.mean;
      squares += by * by;
    }
    out.rstd = 1 / std::sqrt(squares / d + static_cast<Number>(row.n.eps * scale * scale));
    for (std::int64_t j = 0; j < row.n.d; ++j) {
      of_g += g(row, j);
      of_gz += g(row, j) * out.z(row, j);
    }
    out.of_g = layer ? of_g / d : 0;
    out.of_gz = of_gz / d;
    return out;
  }
};

double naive_scale(const Row& row) {
  double largest = 0;
  for (std::int64_t j = 0; j < row.n.d; ++j) largest = std::max(largest, std::abs(row.element(row.x.x, j)));
  return norm_naive_scale(row.n.eps, largest);
}

void add(const Row& row, const Tensor& to, std::int64_t j, float value) {
  const std::int64_t at = ref::at(to, row.b, row.s, row.h, j);
  static_cast<float*>(to.data)[at] += value;
}

}  // namespace

NormBackwardReference::NormBackwardReference(const Norm& problem, const NormOperands& x)
    : NormRowsReference(problem, x,
                        {{"grad_x", &NormOperands::grad_x, ref::wants_grad_x(problem)},
                         {"grad_weight", &NormOperands::grad_weight, ref::wants_grad_weight(problem)},
                         {"grad_bias", &NormOperands::grad_bias, problem.bias}}) {
  std::vector<double> workspace(ref::norm_backward_workspace(problem_) / sizeof(double));
  ref::norm_backward(problem_, exact_.view, workspace.data());
  make_naive();
}

/// z is off by its share, and by that of the rounding of the mean where that has no digits below f32's smallest number
/// (as in judge/norm.cpp); what that means for grad_x is the derivative of its three terms.
void NormBackwardReference::make_naive() {
  const Norm& n = problem_;
  const double d = static_cast<double>(n.d);
  for_each_row<Row>(n, inputs_, [&](const Row& row) {
    const auto exact = Statistics<double>::of(row, 1);
    const auto naive = Statistics<float>::of(row, naive_scale(row));
    const double coarse = n.kind == NormKind::layer && n.eps >= 0x1p-104F ? 0x1p-149 * exact.rstd : 0;
    double of_g = 0, of_gz = 0;
    for (std::int64_t j = 0; j < n.d; ++j) {
      const double g = std::abs(exact.g(row, j));
      of_g += g / d;
      of_gz += g * std::abs(exact.z(row, j)) / d;
    }
    for (std::int64_t j = 0; j < n.d; ++j) {
      const double z = exact.z(row, j), off_z = kSum * 2 * std::abs(z) + coarse, g = std::abs(exact.g(row, j));
      if (ref::wants_grad_x(n)) {
        const float terms = naive.g(row, j) - naive.of_g - naive.z(row, j) * naive.of_gz;
        const double grad = double{terms * naive.rstd} * naive.scale + row.residual(j);
        row.put(naive_.view.grad_x, j, ref::round_as(n.dtype, grad));
        const double off = kSum * (2 * g + 2 * of_g + 4 * std::abs(z) * of_gz) + off_z * std::abs(exact.of_gz) +
                           std::abs(z) * coarse * of_g;
        row.put(granted_.view.grad_x, j, off * exact.rstd + kSum * std::abs(row.residual(j)));
      }
      const double y = std::abs(row.grad_y(j));
      if (ref::wants_grad_weight(n)) {
        add(row, naive_.view.grad_weight, j, static_cast<float>(row.grad_y(j)) * naive.z(row, j));
        add(row, granted_.view.grad_weight, j, static_cast<float>(y * (kSum * std::abs(z) + off_z)));
      }
      if (n.bias) {
        add(row, naive_.view.grad_bias, j, static_cast<float>(row.grad_y(j)));
        add(row, granted_.view.grad_bias, j, static_cast<float>(kSum * y));
      }
    }
  });
}

}  // namespace falchion::judge
