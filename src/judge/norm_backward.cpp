// src/judge/norm_backward.cpp: see norm_backward.hpp.
#include "judge/norm_backward.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/size.hpp"
#include "judge/compare.hpp"
#include "ref/elements.hpp"
#include "ref/norm_backward.hpp"

namespace falchion::judge {
namespace {

constexpr Tensor NormOperands::*kOutputs[] = {&NormOperands::grad_x, &NormOperands::grad_weight,
                                              &NormOperands::grad_bias};
constexpr const char* kNames[] = {"grad_x", "grad_weight", "grad_bias"};

/// One row of the inputs.
struct Row {
  const Norm& n;
  const NormOperands& x;
  std::int64_t b, s, h;

  double element(const Tensor& of, std::int64_t j) const { return ref::load(of, ref::at(of, b, s, h, j)); }
  double weight(std::int64_t j) const { return n.weight ? (n.zero_centered ? 1 : 0) + element(x.weight, j) : 1; }
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

/// The power of two that brings the largest number of the row and the root of eps to about 1.
double naive_scale(const Row& row) {
  double most = std::sqrt(double{row.n.eps});
  for (std::int64_t j = 0; j < row.n.d; ++j) most = std::max(most, std::abs(row.element(row.x.x, j)));
  int exponent = 0;
  if (std::isfinite(most)) std::frexp(most, &exponent);
  return std::ldexp(1.0, -exponent);
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
void add(const Row& row, const Tensor& to, std::int64_t j, float value) {
  const std::int64_t at = ref::at(to, row.b, row.s, row.h, j);
  static_cast<float*>(to.data)[at] += value;
}

}  // namespace

NormBackwardReference::NormBackwardReference(const Norm& problem, const NormOperands& x)
    : problem_(problem), inputs_(x) {
  exact_ = empty();
  std::vector<double> workspace(ref::norm_backward_workspace(problem_) / sizeof(double));
  ref::norm_backward(problem_, exact_.view, workspace.data());
  naive_ = empty();
  granted_ = empty();
  make_naive();
}

bool NormBackwardReference::wants(std::size_t output) const {
  const bool wanted[] = {ref::wants_grad_x(problem_), ref::wants_grad_weight(problem_), problem_.bias};
  return wanted[output];
}

NormBackwardReference::Result NormBackwardReference::empty() const {
  Result out;
  out.view = inputs_;
  for (std::size_t i = 0; i < std::size(kOutputs); ++i) {
    if (!wants(i)) continue;
    Tensor& view = out.view.*kOutputs[i];
    const auto& shape = view.shape;
    out.memory[i].resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    view = Tensor::dense(out.memory[i].data(), DType::f32, shape);
  }
  return out;
}

/// z is off by its share, and by that of the rounding of the mean where that has no digits below f32's smallest number
/// (as in judge/norm.cpp); what that means for grad_x is the derivative of its three terms.
void NormBackwardReference::make_naive() {
  const Norm& n = problem_;
  const double d = static_cast<double>(n.d);
  for_each_row(n, inputs_, [&](const Row& row) {
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
      if (wants(0)) {
        const float terms = naive.g(row, j) - naive.of_g - naive.z(row, j) * naive.of_gz;
        const double grad = double{terms * naive.rstd} * naive.scale + row.residual(j);
        put(row, naive_.view.grad_x, j, ref::round_as(n.dtype, grad));
        const double off = kSum * (2 * g + 2 * of_g + 4 * std::abs(z) * of_gz) + off_z * std::abs(exact.of_gz) +
                           std::abs(z) * coarse * of_g;
        put(row, granted_.view.grad_x, j, off * exact.rstd + kSum * std::abs(row.residual(j)));
      }
      const double y = std::abs(row.grad_y(j));
      if (wants(1)) {
        add(row, naive_.view.grad_weight, j, static_cast<float>(row.grad_y(j)) * naive.z(row, j));
        add(row, granted_.view.grad_weight, j, static_cast<float>(y * (kSum * std::abs(z) + off_z)));
      }
      if (wants(2)) {
        add(row, naive_.view.grad_bias, j, static_cast<float>(row.grad_y(j)));
        add(row, granted_.view.grad_bias, j, static_cast<float>(kSum * y));
      }
    }
  });
}

std::string NormBackwardReference::check(const NormOperands& got) const {
  for (std::size_t i = 0; i < std::size(kOutputs); ++i) {
    if (!wants(i)) continue;
    const auto& shape = (inputs_.*kOutputs[i]).shape;
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t s = 0; s < shape[1]; ++s)
        for (std::int64_t h = 0; h < shape[2]; ++h)
          if (std::string why = check_row(i, got.*kOutputs[i], {b, s, h, 0}); !why.empty()) return why;
  }
  return "";
}

std::string NormBackwardReference::check_row(std::size_t output, const Tensor& got,
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
