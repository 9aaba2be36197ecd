// tools/ladder/gemm_problem.cpp
#include "ladder/gemm_problem.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "plan/text.hpp"
#include "policy/dtype.hpp"
#include "types/size.hpp"

namespace falchion::tools {
namespace {

constexpr std::int64_t kSampledLines = 64;  // rows, and columns

/// Number i of n that are evenly spread over `of`.
std::int64_t spread(std::int64_t i, std::int64_t n, std::int64_t of) { return n > 1 ? i * (of - 1) / (n - 1) : 0; }

float number(const float* x, std::int64_t at) { return x[at]; }
float number(const std::uint16_t* x, std::int64_t at) { return f32_from_bf16(x[at]); }

/// The matrix (rows, columns) times a vector.
template <class T>
std::vector<double> times(const T* matrix, std::int64_t rows, std::int64_t columns, const std::vector<double>& x) {
  std::vector<double> out(static_cast<std::size_t>(rows));
#pragma omp parallel for
  for (std::int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < columns; ++j)
      sum += static_cast<double>(number(matrix, i * columns + j)) * x[static_cast<std::size_t>(j)];
    out[static_cast<std::size_t>(i)] = sum;
  }
  return out;
}

std::vector<double> times(const HostTensor& matrix, const std::vector<double>& x) {
  const std::int64_t rows = matrix.view.shape[1], columns = matrix.view.shape[3];
  if (matrix.view.dtype == DType::f32) return times(matrix.memory.as<float>(), rows, columns, x);
  return times(matrix.memory.as<std::uint16_t>(), rows, columns, x);
}

std::size_t bytes_of(std::int64_t rows, std::int64_t columns, DType dtype) {
  return static_cast<std::size_t>(rows * columns * size_of(dtype));
}

}  // namespace

GemmLadderProblem::GemmLadderProblem(Side side, const ladder::gemm::Problem& p, DType dtype, std::uint64_t seed)
    : side_(side),
      problem_(p),
      dtype_(dtype),
      a_(side, bytes_of(p.m, p.k, dtype)),
      b_(side, bytes_of(p.k, p.n, dtype)),
      c_(side, bytes_of(p.m, p.n, dtype)),
      rows_(std::min<std::int64_t>(kSampledLines, p.m)),
      columns_(std::min<std::int64_t>(kSampledLines, p.n)) {
  const HostTensor a = make_random(dtype, {1, p.m, 1, p.k}, seed), b = make_random(dtype, {1, p.k, 1, p.n}, seed + 1);
  a_.put(a.memory.data());
  b_.put(b.memory.data());
  sampled_a_ = make_tensor(dtype, {1, rows_, 1, p.k});
  sampled_b_ = make_tensor(dtype, {1, columns_, 1, p.k});
  for (std::int64_t l = 0; l < p.k; ++l) {
    for (std::int64_t i = 0; i < rows_; ++i)
      store_element(sampled_a_.view, 0, i, 0, l, load_element(a.view, 0, row(i), 0, l));
    for (std::int64_t j = 0; j < columns_; ++j)
      store_element(sampled_b_.view, 0, j, 0, l, load_element(b.view, 0, l, 0, column(j)));
  }
  Gemm sample = gemm();
  sample.m = rows_;
  sample.n = columns_;
  GemmOperands x;
  x.a = sampled_a_.view;
  x.b = sampled_b_.view;
  x.d = Tensor::dense(nullptr, dtype, {1, rows_, 1, columns_});
  reference_ = std::make_unique<judge::GemmReference>(sample, x);
  signs_.resize(static_cast<std::size_t>(p.n));
  for (std::size_t j = 0; j < signs_.size(); ++j) signs_[j] = judge::nudge_sign(seed, j);
  row_sums_ = times(a, times(b, signs_));
}

std::int64_t GemmLadderProblem::row(std::int64_t n) const { return spread(n, rows_, problem_.m); }
std::int64_t GemmLadderProblem::column(std::int64_t n) const { return spread(n, columns_, problem_.n); }

ladder::gemm::Tensors GemmLadderProblem::tensors(void* workspace) const {
  return {a_.data(), b_.data(), c_.data(), workspace};
}

Gemm GemmLadderProblem::gemm() const { return {.dtype = dtype_, .m = problem_.m, .n = problem_.n, .k = problem_.k}; }

GemmOperands GemmLadderProblem::operands() const {
  const ladder::gemm::Problem& p = problem_;
  GemmOperands x;
  x.a = Tensor::dense(a_.data(), dtype_, {1, p.m, 1, p.k});
  x.b = {b_.data(),
         dtype_,
         {1, p.n, 1, p.k},
         {0, 1, 0, p.n}};  // the library multiplies by B^T, so its b is ours transposed
  x.d = Tensor::dense(c_.data(), dtype_, {1, p.m, 1, p.n});
  return x;
}

/// The errors of a row's elements add up as random numbers do. Each is up to half a unit, and in f32 the sum over k
/// adds roundings, about the root of k units of them.
std::string GemmLadderProblem::wrong_row(const HostTensor& c) const {
  const double root_n = std::sqrt(static_cast<double>(problem_.n)), root_k = std::sqrt(static_cast<double>(problem_.k));
  const double limit =
      (root_n + 8) * judge::unit_at(dtype_, root_k) * (dtype_ == DType::f32 ? std::max(root_k, 1.0) : 1.0);
  const std::vector<double> sums = times(c, signs_);
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (!(std::abs(sums[i] - row_sums_[i]) <= limit))
      return fmt::format("row {} of C, summed with random signs, is {:.6g}, must be {:.6g} within {:.2g}", i, sums[i],
                         row_sums_[i], limit);
  return "";
}

judge::ErrorReport GemmLadderProblem::check() const {
  const HostTensor c = make_tensor(dtype_, {1, problem_.m, 1, problem_.n});
  c_.get(c.memory.data());
  const HostTensor sample = make_tensor(dtype_, {1, rows_, 1, columns_});
  for (std::int64_t i = 0; i < rows_; ++i)
    for (std::int64_t j = 0; j < columns_; ++j)
      store_element(sample.view, 0, i, 0, j, load_element(c.view, 0, row(i), 0, column(j)));
  judge::ErrorReport report = reference_->check(sample.view);
  if (report.passed()) report.why = wrong_row(c);
  return report;
}

std::string GemmLadderProblem::what_is_checked() const {
  return fmt::format(
      "Error: of {} x {} elements of C against the definition in double; each row of C is summed with random signs and "
      "compared with A (B s)",
      rows_, columns_);
}

}  // namespace falchion::tools
