// examples/train_gpt/layers.hpp: what a GPT has besides attention, each forward and backward. The gradient of x is
// called grad_x; a gradient of a parameter is added to what is there, because several places may use it.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "matrix.hpp"

namespace train_gpt {

/// What is learned, and the gradient of the loss with respect to it.
struct Parameter {
  std::string name;
  Matrix value, grad;

  Parameter(std::string name, std::int64_t rows, std::int64_t columns, float fill = 0)
      : name(std::move(name)), value(rows, columns, fill), grad(rows, columns) {}
  void randomise(std::mt19937_64* random, float deviation) {
    std::normal_distribution<float> normal(0, deviation);
    for (float& x : value.data) x = normal(*random);
  }
};

/// y = x w
inline Matrix linear(const Matrix& x, const Parameter& w) { return product(x, w.value); }

inline Matrix linear_backward(const Matrix& x, const Matrix& grad_y, Parameter* w) {
  add_product(transposed(x), grad_y, &w->grad);
  return product(grad_y, transposed(w->value));
}

/// y = gain x / sqrt(mean of x^2), row by row.
inline float one_over_rms(const float* x, std::int64_t n) {
  constexpr double kEpsilon = 1e-5;
  double squares = 0;
  for (std::int64_t j = 0; j < n; ++j) squares += static_cast<double>(x[j]) * x[j];
  return static_cast<float>(1 / std::sqrt(squares / static_cast<double>(n) + kEpsilon));
}

inline Matrix rms_norm(const Matrix& x, const Parameter& gain) {
  Matrix y(x.rows, x.columns);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const float r = one_over_rms(x.row(i), x.columns);
    for (std::int64_t j = 0; j < x.columns; ++j) y.row(i)[j] = gain.value.data[j] * x.row(i)[j] * r;
  }
  return y;
}

inline Matrix rms_norm_backward(const Matrix& x, const Matrix& grad_y, Parameter* gain) {
  Matrix grad_x(x.rows, x.columns);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const float r = one_over_rms(x.row(i), x.columns);
    double along_x = 0;  // how much of the gradient only makes the row longer, which the norm takes back
    for (std::int64_t j = 0; j < x.columns; ++j) {
      gain->grad.data[j] += grad_y.row(i)[j] * x.row(i)[j] * r;
      along_x += static_cast<double>(gain->value.data[j]) * grad_y.row(i)[j] * x.row(i)[j];
    }
    const float take = static_cast<float>(along_x / static_cast<double>(x.columns)) * r * r * r;
    for (std::int64_t j = 0; j < x.columns; ++j)
      grad_x.row(i)[j] = gain->value.data[j] * grad_y.row(i)[j] * r - take * x.row(i)[j];
  }
  return grad_x;
}

/// y = max(x, 0)^2, the activation of Primer (arXiv:2109.08668). Unlike GELU it needs no tanh.
inline Matrix squared_relu(const Matrix& x) {
  Matrix y = x;
  for (float& value : y.data) value = value > 0 ? value * value : 0;
  return y;
}

inline Matrix squared_relu_backward(const Matrix& x, const Matrix& grad_y) {
  Matrix grad_x = grad_y;
  for (std::size_t i = 0; i < x.data.size(); ++i) grad_x.data[i] *= x.data[i] > 0 ? 2 * x.data[i] : 0;
  return grad_x;
}

/// Each token's own row of `tokens` plus the row of `places` for where it stands in its sequence.
inline Matrix embed(const std::vector<std::uint8_t>& text, const Parameter& tokens, const Parameter& places) {
  Matrix x(static_cast<std::int64_t>(text.size()), tokens.value.columns);
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < x.columns; ++j)
      x.row(i)[j] = tokens.value.row(text[static_cast<std::size_t>(i)])[j] + places.value.row(i % places.value.rows)[j];
  return x;
}

inline void embed_backward(const std::vector<std::uint8_t>& text, const Matrix& grad_x, Parameter* tokens,
                           Parameter* places) {
  for (std::int64_t i = 0; i < grad_x.rows; ++i) {
    for (std::int64_t j = 0; j < grad_x.columns; ++j) {
      tokens->grad.row(text[static_cast<std::size_t>(i)])[j] += grad_x.row(i)[j];
      places->grad.row(i % places->grad.rows)[j] += grad_x.row(i)[j];
    }
  }
}

/// Returns the mean of -log softmax(logits)[target] over all rows, in double, and turns logits into their gradient.
inline double cross_entropy(const std::vector<std::uint8_t>& targets, Matrix* logits) {
  double loss = 0;
  const double share = 1 / static_cast<double>(logits->rows);
  std::vector<double> e(static_cast<std::size_t>(logits->columns));
  for (std::int64_t i = 0; i < logits->rows; ++i) {
    float* row = logits->row(i);
    const double largest = *std::max_element(row, row + logits->columns);
    double sum = 0;
    for (std::int64_t j = 0; j < logits->columns; ++j) sum += e[j] = std::exp(row[j] - largest);
    const std::uint8_t target = targets[static_cast<std::size_t>(i)];
    loss -= (row[target] - largest - std::log(sum)) * share;
    for (std::int64_t j = 0; j < logits->columns; ++j)
      row[j] = static_cast<float>((e[j] / sum - (j == target ? 1 : 0)) * share);
  }
  return loss;
}

}  // namespace train_gpt
