// examples/train_gpt/matrix.hpp: a matrix of f32, views of it, and the one product that every layer and its gradients
// are made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace train_gpt {

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> data{};

  Matrix() = default;
  Matrix(std::int64_t rows, std::int64_t columns, float fill = 0)
      : rows(rows), columns(columns), data(static_cast<std::size_t>(rows * columns), fill) {}
  float* row(std::int64_t i) { return data.data() + i * columns; }
  const float* row(std::int64_t i) const { return data.data() + i * columns; }
};

/// What a product reads: a matrix, or a matrix turned.
struct View {
  const float* data;
  std::int64_t rows, columns, row_stride, column_stride;

  View(const Matrix& m) : View{m.data.data(), m.rows, m.columns, m.columns, 1} {}  // NOLINT: a Matrix is a View
  View(const float* data, std::int64_t rows, std::int64_t columns, std::int64_t row_stride, std::int64_t column_stride)
      : data(data), rows(rows), columns(columns), row_stride(row_stride), column_stride(column_stride) {}
  float at(std::int64_t i, std::int64_t j) const { return data[i * row_stride + j * column_stride]; }
};

inline View transposed(const Matrix& m) { return {m.data.data(), m.columns, m.rows, 1, m.columns}; }

/// c += a b. A thread owns a strip of 32 columns of c, copies that strip of b so that it lies in order, and sums blocks
/// of 4 x 32 numbers in registers. So each number of c has one order of additions, whatever the number of threads. A
/// product that takes some 0.1 ms is done by one thread, since others would have to be woken.
inline void add_product(View a, View b, Matrix* c) {
  constexpr std::int64_t kRows = 4, kColumns = 32;
  constexpr std::int64_t kWorthThreads = 4'000'000;
  const std::int64_t strips = (c->columns + kColumns - 1) / kColumns;
#pragma omp parallel for schedule(static) if (c->rows * c->columns * b.rows > kWorthThreads)
  for (std::int64_t strip = 0; strip < strips; ++strip) {
    const std::int64_t first = strip * kColumns, wide = std::min(kColumns, c->columns - first);
    std::vector<float> of_b(static_cast<std::size_t>(b.rows * kColumns));
    for (std::int64_t k = 0; k < b.rows; ++k)
      for (std::int64_t j = 0; j < wide; ++j) of_b[static_cast<std::size_t>(k * kColumns + j)] = b.at(k, first + j);
    for (std::int64_t i = 0; i < c->rows; i += kRows) {
      const std::int64_t high = std::min(kRows, c->rows - i);
      float sum[kRows][kColumns] = {};
      for (std::int64_t k = 0; k < b.rows; ++k) {
        const float* row_of_b = of_b.data() + k * kColumns;
        for (std::int64_t r = 0; r < kRows; ++r) {
          const float factor = a.at(i + std::min(r, high - 1), k);
          for (std::int64_t j = 0; j < kColumns; ++j) sum[r][j] += factor * row_of_b[j];
        }
      }
      for (std::int64_t r = 0; r < high; ++r)
        for (std::int64_t j = 0; j < wide; ++j) c->row(i + r)[first + j] += sum[r][j];
    }
  }
}

inline Matrix product(View a, View b) {
  Matrix c(a.rows, b.columns);
  add_product(a, b, &c);
  return c;
}

/// c += a
inline void add(const Matrix& a, Matrix* c) {
  for (std::size_t i = 0; i < a.data.size(); ++i) c->data[i] += a.data[i];
}

}  // namespace train_gpt
