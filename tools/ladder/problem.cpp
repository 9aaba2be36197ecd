// tools/ladder/problem.cpp
#include "ladder/problem.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "plan/text.hpp"
#include "types/size.hpp"

namespace falchion::tools {

namespace {

/// Scores that the sample may have: the definition in double takes about 0.3 us each.
constexpr std::int64_t kSampledScores = 1 << 20;

Shape q_shape(const ladder::Problem& p) { return {p.b, p.s_q, p.h, p.d}; }
Shape k_shape(const ladder::Problem& p) { return {p.b, p.s_k, p.h, p.d}; }
/// n of `of`, evenly spread, the first and the last among them.
std::int64_t spread(std::int64_t i, std::int64_t n, std::int64_t of) { return n > 1 ? i * (of - 1) / (n - 1) : 0; }

}  // namespace

LadderProblem::LadderProblem(Side side, const ladder::Problem& problem, std::uint64_t seed)
    : side_(side),
      problem_(problem),
      host_q_(make_random(dtype(), q_shape(problem), seed)),
      host_k_(make_random(dtype(), k_shape(problem), seed + 1)),
      host_v_(make_random(dtype(), k_shape(problem), seed + 2)),
      q_(side, host_q_.memory.size()),
      k_(side, host_k_.memory.size()),
      v_(side, host_v_.memory.size()),
      o_(side, host_q_.memory.size()),
      heads_(std::min<std::int64_t>(4, std::int64_t{problem.b} * problem.h)),
      rows_(std::clamp<std::int64_t>(kSampledScores / (heads_ * std::max(problem.s_k, 1)), 1, problem.s_q)) {
  q_.put(host_q_.memory.data());
  k_.put(host_k_.memory.data());
  v_.put(host_v_.memory.data());
  fill_sample();
  reference_ = std::make_unique<Reference>(sample_);
}

int LadderProblem::head(std::int64_t n) const {
  return static_cast<int>(spread(n, heads_, std::int64_t{problem_.b} * problem_.h));
}
std::int64_t LadderProblem::query(std::int64_t r) const { return spread(r, rows_, problem_.s_q); }
std::int64_t LadderProblem::row_offset(std::int64_t n, std::int64_t r) const {
  const std::int64_t b = head(n) / problem_.h, h = head(n) % problem_.h;
  return ((b * problem_.s_q + query(r)) * problem_.h + h) * problem_.d;
}

void LadderProblem::fill_sample() {
  const ladder::Problem& p = problem_;
  const std::size_t row_bytes = static_cast<std::size_t>(p.d * size_of(dtype()));
  const auto at = [&](const HostTensor& x, std::int64_t element) {
    return x.memory.data() + element * size_of(dtype());
  };
  Attention& a = sample_.problem;
  a.dtype = dtype();
  a.b = heads_;
  a.s_q = rows_;
  a.s_k = p.s_k;
  a.d_qk = a.d_v = p.d;
  a.score.scale = p.scale;
  a.mask = true;  // The band is given as a mask, since the rows of the sample are no neighbours.
  sample_.q = make_tensor(dtype(), {heads_, rows_, 1, p.d});
  sample_.k = make_tensor(dtype(), {heads_, p.s_k, 1, p.d});
  sample_.v = make_tensor(dtype(), {heads_, p.s_k, 1, p.d});
  sample_.mask = make_tensor(DType::boolean, {1, 1, rows_, p.s_k});
  for (std::int64_t n = 0; n < heads_; ++n) {
    for (std::int64_t r = 0; r < rows_; ++r)
      std::memcpy(at(sample_.q, (n * rows_ + r) * p.d), at(host_q_, row_offset(n, r)), row_bytes);
    for (std::int64_t j = 0; j < p.s_k; ++j) {
      const std::int64_t from = ((std::int64_t{head(n) / p.h} * p.s_k + j) * p.h + head(n) % p.h) * p.d;
      std::memcpy(at(sample_.k, (n * p.s_k + j) * p.d), at(host_k_, from), row_bytes);
      std::memcpy(at(sample_.v, (n * p.s_k + j) * p.d), at(host_v_, from), row_bytes);
    }
  }
  for (std::int64_t r = 0; r < rows_; ++r)
    for (std::int64_t j = 0; j < p.s_k; ++j) store_element(sample_.mask.view, 0, 0, r, j, p.mask().keep(query(r), j));
}

Attention LadderProblem::attention() const {
  Attention a;
  a.dtype = dtype();
  a.b = problem_.b;
  a.s_q = problem_.s_q;
  a.s_k = problem_.s_k;
  a.h_q = a.h_k = problem_.h;
  a.d_qk = a.d_v = problem_.d;
  a.band = problem_.causal ? Band::causal(Align::bottom_right) : Band::full();
  return a;
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
  const HostTensor o = make_tensor(dtype(), q_shape(problem_)), sampled = make_tensor(dtype(), sample_.q.view.shape);
  o_.get(o.memory.data());
  const std::int64_t elements = element_count(q_shape(problem_));
  const Tensor flat = Tensor::dense(o.memory.data(), dtype(), {1, 1, 1, elements});
  std::int64_t bad = 0;  // inputs are finite, so every element of O is; poison is not
  for (std::int64_t i = 0; i < elements; ++i) bad += !std::isfinite(load_element(flat, 0, 0, 0, i));
  const std::size_t row_bytes = static_cast<std::size_t>(problem_.d * size_of(dtype()));
  for (std::int64_t n = 0; n < heads_; ++n)
    for (std::int64_t r = 0; r < rows_; ++r)
      std::memcpy(sampled.memory.data() + static_cast<std::size_t>(n * rows_ + r) * row_bytes,
                  o.memory.data() + row_offset(n, r) * size_of(dtype()), row_bytes);
  ErrorReport report = reference_->check_o(sampled.view);
  if (report.passed() && bad > 0) report.why = fmt::format("{} elements of O were not written, or are not finite", bad);
  return report;
}

std::string LadderProblem::what_is_checked() const {
  return fmt::format(
      "Error: of {} of the {} rows in {} of the {} heads, against the definition in double; all other elements only "
      "for "
      "having been written",
      rows_, problem_.s_q, heads_, problem_.b * problem_.h);
}

}  // namespace falchion::tools
