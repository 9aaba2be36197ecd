// tools/ladder/gemm_problem.cpp
#include "ladder/gemm_problem.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/divide.hpp"
#include "base/size.hpp"
#include "plan/text.hpp"
#include "policy/dtype.hpp"

namespace falchion::tools {
namespace {

constexpr std::int64_t kSampledLines = 64;  // rows, and columns
constexpr std::int64_t kGroup = 64;         // columns of a row of C that are summed together

/// Index i of n that are spread evenly from 0 to of - 1.
std::int64_t spread(std::int64_t i, std::int64_t n, std::int64_t of) { return n > 1 ? i * (of - 1) / (n - 1) : 0; }

float number(const float* x, std::int64_t at) { return x[at]; }
float number(const std::uint16_t* x, std::int64_t at) { return f32_from_bf16(x[at]); }

/// Calls f(numbers, rows, columns) with a matrix in its type.
template <class F>
auto of_its_type(const HostTensor& matrix, const F& f) {
  const std::int64_t rows = matrix.view.shape[1], columns = matrix.view.shape[3];
  if (matrix.view.dtype == DType::f32) return f(matrix.memory.as<float>(), rows, columns);
  return f(matrix.memory.as<std::uint16_t>(), rows, columns);
}

/// (rows, groups): of each row the sums of its groups of columns, each column with its sign.
std::vector<double> sums_of_groups(const HostTensor& matrix, const std::vector<double>& signs) {
  return of_its_type(matrix, [&](const auto* numbers, std::int64_t rows, std::int64_t columns) {
    const std::int64_t groups = ceil_div(columns, kGroup);
    std::vector<double> out(static_cast<std::size_t>(rows * groups));
#pragma omp parallel for
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        out[static_cast<std::size_t>(i * groups + j / kGroup)] +=
            static_cast<double>(number(numbers, i * columns + j)) * signs[static_cast<std::size_t>(j)];
    return out;
  });
}

/// The matrix (rows, k) times x (k, columns). Some rows at a time, so that x is read from memory once for all of them.
std::vector<double> times(const HostTensor& matrix, const std::vector<double>& x, std::int64_t columns) {
  return of_its_type(matrix, [&](const auto* numbers, std::int64_t rows, std::int64_t k) {
    constexpr std::int64_t kRows = 8;
    std::vector<double> out(static_cast<std::size_t>(rows * columns));
#pragma omp parallel for
    for (std::int64_t first = 0; first < rows; first += kRows) {
      for (std::int64_t l = 0; l < k; ++l) {
        const double* const line = x.data() + l * columns;
        for (std::int64_t i = first; i < std::min(first + kRows, rows); ++i) {
          const double factor = number(numbers, i * k + l);
          double* const sums = out.data() + i * columns;
          for (std::int64_t j = 0; j < columns; ++j) sums[j] += factor * line[j];
        }
      }
    }
    return out;
  });
}

/// The granted error of the sum of a group in a row of C, for each row of A. Since B has normal numbers, the elements
/// of the row of C are usually as large as the row of A is long (the root of its sum of squares). The 64 roundings of a
/// group add up like random numbers. In units at that magnitude, their sum has a root mean square of 1.7 in bf16, where
/// only the last rounding of an element counts, and of up to 1.7 times the root of k in f32, where each addition
/// rounds. The limit is 7 times that, so that one correct sum in 10^11 exceeds it.
std::vector<double> limits_of(const HostTensor& a) {
  return of_its_type(a, [&](const auto* numbers, std::int64_t rows, std::int64_t k) {
    const double on_the_way = a.view.dtype == DType::f32 ? std::sqrt(static_cast<double>(k)) : 1;
    std::vector<double> out(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i) {
      double square = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        const double x = number(numbers, i * k + l);
        square += x * x;
      }
      out[static_cast<std::size_t>(i)] = 12 * judge::unit_at(a.view.dtype, 1) * on_the_way * std::sqrt(square);
    }
    return out;
  });
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
  sums_ = times(a, sums_of_groups(b, signs_), ceil_div(p.n, kGroup));
  limits_ = limits_of(a);
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

std::string GemmLadderProblem::wrong_group(const HostTensor& c) const {
  const std::vector<double> sums = sums_of_groups(c, signs_);
  const auto groups = static_cast<std::size_t>(ceil_div(problem_.n, kGroup));
  for (std::size_t n = 0; n < sums.size(); ++n) {
    const std::size_t i = n / groups, first = n % groups * kGroup;
    if (!(std::abs(sums[n] - sums_[n]) <= limits_[i]))
      return fmt::format(
          "columns {} to {} of row {} of C, summed with random signs, are {:.6g}, must be {:.6g} within {:.2g}", first,
          std::min(first + kGroup, static_cast<std::size_t>(problem_.n)) - 1, i, sums[n], sums_[n], limits_[i]);
  }
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
  if (report.passed()) report.why = wrong_group(c);
  return report;
}

std::string GemmLadderProblem::what_is_checked() const {
  return fmt::format(
      "Error: of {} x {} elements of C against the definition in double; each {} columns of a row of C are summed with "
      "random signs and compared with A (B s)",
      rows_, columns_, kGroup);
}

}  // namespace falchion::tools
