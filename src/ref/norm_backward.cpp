// src/ref/norm_backward.cpp: the definition of the gradients of a norm. It is naive on purpose: the statistics of each
// row, then grad_x, one row after the other, then each element of grad_weight and grad_bias, in double.
#include "ref/norm_backward.hpp"

#include <cmath>
#include <cstdint>

#include "ref/elements.hpp"

namespace falchion::ref {
namespace {

struct Statistics {
  double mean, rstd;
};

struct Row {
  const Norm& norm;
  const NormOperands& x;
  Statistics own;
  std::int64_t b, s, h;

  double element(const Tensor& of, std::int64_t j) const { return load(of, at(of, b, s, h, j)); }
  double z(std::int64_t j) const { return (element(x.x, j) - own.mean) * own.rstd; }
  double g(std::int64_t j) const {
    return element(x.grad_y, j) * (norm.weight ? (norm.zero_centered ? 1 : 0) + element(x.weight, j) : 1);
  }
};

Statistics statistics_of(const Row& row) {
  const Norm& n = row.norm;
  const auto d = static_cast<double>(n.d);
  double sum = 0, squares = 0;
  for (std::int64_t j = 0; n.kind == NormKind::layer && j < n.d; ++j) sum += row.element(row.x.x, j);
  const double mean = sum / d;
  for (std::int64_t j = 0; j < n.d; ++j) squares += std::pow(row.element(row.x.x, j) - mean, 2);
  return {mean, 1 / std::sqrt(squares / d + n.eps)};
}

void store_grad_x(const Row& row) {
  const Norm& n = row.norm;
  double of_g = 0, of_gz = 0;
  for (std::int64_t j = 0; j < n.d; ++j) {
    of_g += row.g(j);
    of_gz += row.g(j) * row.z(j);
  }
  const double d = static_cast<double>(n.d), mean_g = n.kind == NormKind::layer ? of_g / d : 0, mean_gz = of_gz / d;
  for (std::int64_t j = 0; j < n.d; ++j) {
    const double more = n.residual_out ? row.element(row.x.grad_residual_out, j) : 0;
    const double grad = (row.g(j) - mean_g - row.z(j) * mean_gz) * row.own.rstd + more;
    store(row.x.grad_x, at(row.x.grad_x, row.b, row.s, row.h, j), grad);
  }
}

/// Adds up value(row, j) for each element of `to`, over the rows that share it.
template <class F>
void store_sums(const Norm& n, const NormOperands& x, const Statistics* all, const Tensor& to, const F& value) {
  const auto& rows = x.x.shape;
  const auto begin = [&](int axis, std::int64_t i) { return to.shape[axis] == 1 ? 0 : i; };
  const auto end = [&](int axis, std::int64_t i) { return to.shape[axis] == 1 ? rows[axis] : i + 1; };
  for (std::int64_t i0 = 0; i0 < to.shape[0]; ++i0)
    for (std::int64_t i1 = 0; i1 < to.shape[1]; ++i1)
      for (std::int64_t i2 = 0; i2 < to.shape[2]; ++i2)
        for (std::int64_t j = 0; j < n.d; ++j) {
          double sum = 0;
          for (std::int64_t b = begin(0, i0); b < end(0, i0); ++b)
            for (std::int64_t s = begin(1, i1); s < end(1, i1); ++s)
              for (std::int64_t h = begin(2, i2); h < end(2, i2); ++h)
                sum += value(Row{n, x, all[(b * rows[1] + s) * rows[2] + h], b, s, h}, j);
          store(to, at(to, i0, i1, i2, j), sum);
        }
}

}  // namespace

std::size_t norm_backward_workspace(const Norm& n) { return static_cast<std::size_t>(n.rows) * sizeof(Statistics); }

/// grad_x is last, because it may be in the place of an input.
void norm_backward(const Norm& n, const NormOperands& x, void* workspace) noexcept {
  auto* all = static_cast<Statistics*>(workspace);
  const auto& shape = x.x.shape;
  const auto each_row = [&](const auto& f) {
    for (std::int64_t b = 0, row = 0; b < shape[0]; ++b)
      for (std::int64_t s = 0; s < shape[1]; ++s)
        for (std::int64_t h = 0; h < shape[2]; ++h, ++row) f(Row{n, x, all[row], b, s, h}, row);
  };
  each_row([&](const Row& row, std::int64_t r) { all[r] = statistics_of(row); });
  if (wants_grad_weight(n))
    store_sums(n, x, all, x.grad_weight, [&](const Row& row, auto j) { return row.element(x.grad_y, j) * row.z(j); });
  if (n.bias) store_sums(n, x, all, x.grad_bias, [&](const Row& row, auto j) { return row.element(x.grad_y, j); });
  if (wants_grad_x(n)) each_row([](const Row& row, std::int64_t) { store_grad_x(row); });
}

}  // namespace falchion::ref
