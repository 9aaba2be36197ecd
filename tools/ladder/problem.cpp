// tools/ladder/problem.cpp
#include "ladder/problem.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "plan/text.hpp"

namespace falchion::tools {
namespace {

/// Scores that the sample may have: the definition in double takes about 0.3 us each.
constexpr std::int64_t kSampledScores = 1 << 20;

Shape q_shape(const ladder::Problem& p) { return {p.b, p.s_q, p.h, p.d}; }
Shape k_shape(const ladder::Problem& p) { return {p.b, p.s_k, p.h, p.d}; }

HostTensor converted(const HostTensor& x, DType dtype) {
  HostTensor out = make_tensor(dtype, x.view.shape);
  const auto [b, s, h, d] = x.view.shape;
#pragma omp parallel for
  for (std::int64_t row = 0; row < b * s; ++row)
    for (std::int64_t head = 0; head < h; ++head)
      for (std::int64_t i = 0; i < d; ++i)
        store_element(out.view, row / s, row % s, head, i, load_element(x.view, row / s, row % s, head, i));
  return out;
}

}  // namespace

LadderProblem::LadderProblem(Side side, const ladder::Problem& problem, std::uint64_t seed, bool eight_bits)
    : side_(side),
      problem_(problem),
      host_q_(make_random(dtype(), q_shape(problem), seed)),
      host_k_(make_random(dtype(), k_shape(problem), seed + 1)),
      host_v_(make_random(dtype(), k_shape(problem), seed + 2)),
      q_(side, host_q_.memory.size()),
      k_(side, host_k_.memory.size()),
      v_(side, host_v_.memory.size()),
      o_(side, host_q_.memory.size()),
      sample_{problem, sampled_heads(problem), 0, problem.s_k} {
  sample_.rows = std::clamp<std::int64_t>(kSampledScores / (sample_.heads * std::max(problem.s_k, 1)), 1, problem.s_q);
  if (eight_bits)
    for (HostTensor* x : {&host_q_, &host_k_, &host_v_}) *x = converted(converted(*x, DType::e4m3), dtype());
  q_.put(host_q_.memory.data());
  k_.put(host_k_.memory.data());
  v_.put(host_v_.memory.data());
  sampled_.problem = sample_.attention(dtype());
  sampled_.q = sample_.rows_of(host_q_);
  sampled_.k = sample_.keys_of(host_k_);
  sampled_.v = sample_.keys_of(host_v_);
  sampled_.mask = sample_.mask();
  if (eight_bits) {
    sampled_.problem.dtype = DType::e4m3;
    sampled_.problem.dtype_o = dtype();
    for (HostTensor* x : {&sampled_.q, &sampled_.k, &sampled_.v}) *x = converted(*x, DType::e4m3);
  }
  reference_ = std::make_unique<Reference>(sampled_);
}

Operands LadderProblem::operands() const {
  Operands x;
  x.q = Tensor::dense(q_.data(), dtype(), q_shape(problem_));
  x.o = Tensor::dense(o_.data(), dtype(), q_shape(problem_));
  x.k = Tensor::dense(k_.data(), dtype(), k_shape(problem_));
  x.v = Tensor::dense(v_.data(), dtype(), k_shape(problem_));
  return x;
}

ladder::Tensors LadderProblem::tensors(void* workspace) const {
  return {q_.data(), k_.data(), v_.data(), o_.data(), workspace};
}

ErrorReport LadderProblem::check() const {
  const HostTensor o = make_tensor(dtype(), q_shape(problem_));
  o_.get(o.memory.data());
  const std::int64_t bad = count_not_finite(o);
  ErrorReport report = reference_->check_o(sample_.rows_of(o).view);
  if (report.passed() && bad > 0) report.why = fmt::format("{} elements of O were not written, or are not finite", bad);
  return report;
}

std::string LadderProblem::what_is_checked() const {
  return fmt::format("Error: of {}, against the definition in double; all other elements only for having been written",
                     sample_.text_of_rows());
}

}  // namespace falchion::tools
