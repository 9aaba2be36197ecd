// src/ref/gemm.cpp: the definition of a GEMM. It is naive on purpose: one element of D after the other, in double.
#include "ref/gemm.hpp"

#include <cmath>
#include <cstdint>
#include <numbers>

#include "policy/scale_block.hpp"
#include "ref/elements.hpp"

namespace falchion::ref {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// The product of row `i` of A and row `column` of B: the sums over k in order, times their scales.
double product_of(const Gemm& g, const GemmOperands& x, std::int64_t b, std::int64_t i, std::int64_t column) {
  double product = 0;
  each_scaled_part(g, x, b, i, column, [&](const ScaledPart& part) {
    double sum = 0;
    each_of_k(x, part.first, part.end, [&](std::int64_t k, std::int64_t l) {
      sum += static_cast<double>(load(x.a, at(x.a, b, i, k, l))) * load(x.b, at(x.b, b, column, k, l));
    });
    product += static_cast<double>(part.scale_a) * part.scale_b * sum;
  });
  return product;
}

/// Z at (i, column): alpha times the product, plus beta C and the biases. With swiglu columns n to 2 n are those of
/// "up". Where alpha is 0 neither A and B nor their scales are read.
double z_of(const Gemm& g, const GemmOperands& x, std::int64_t b, std::int64_t i, std::int64_t column) {
  double z = g.alpha != 0 ? g.alpha * product_of(g, x, b, i, column) : 0;  // Z = alpha s_a s_b A B^T + beta C + bias
  const std::int64_t n1 = x.d.shape[3];
  if (g.beta != 0) z += g.beta * static_cast<double>(load(x.c, at(x.c, b, i, column / n1, column % n1)));
  if (g.bias_n) z += load(x.bias_n, at(x.bias_n, 0, 0, 0, column));
  if (g.bias_m) z += load(x.bias_m, at(x.bias_m, b, i, 0, 0));
  return z;
}

}  // namespace

ScaledPart scaled_part(const Gemm& g, const GemmOperands& x, std::int64_t b, std::int64_t i, std::int64_t column,
                       std::int64_t part) {
  if (g.scaling == Scaling::none) return {0, g.k, 1, 1};
  const bool blocks = g.scaling == Scaling::block128;
  const std::int64_t first = part * kScaleBlock, row_of_b = blocks ? column / kScaleBlock : column;
  return {blocks ? first : 0, blocks ? std::min(first + kScaleBlock, g.k) : g.k,
          load(x.scale_a, at(x.scale_a, b, i, part, 0)), load(x.scale_b, at(x.scale_b, b, row_of_b, part, 0))};
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::relu: return x < 0 ? 0 : x;  // keeps NaN
    case Activation::gelu_tanh: return x * sigmoid(2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
    case Activation::gelu_erf: return x * std::erfc(-x / std::numbers::sqrt2) / 2;
    case Activation::silu:
    case Activation::swiglu: return x * sigmoid(x);
  }
  return x;
}

void gemm(const Gemm& g, const GemmOperands& x) noexcept {
  const std::int64_t n1 = x.d.shape[3];
  for (std::int64_t b = 0; b < g.batch; ++b)
    for (std::int64_t i = 0; i < g.m; ++i)
      for (std::int64_t j = 0; j < g.n; ++j) {
        double d = activated(g.activation, z_of(g, x, b, i, j));                      // activation(Z)
        if (g.activation == Activation::swiglu) d *= z_of(g, x, b, i, g.n + j);       // the gate times "up"
        if (g.residual) d += load(x.residual, at(x.residual, b, i, j / n1, j % n1));  // + R
        store(x.d, at(x.d, b, i, j / n1, j % n1), d);
      }
}

}  // namespace falchion::ref
