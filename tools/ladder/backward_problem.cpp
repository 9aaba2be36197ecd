// tools/ladder/backward_problem.cpp
#include "ladder/backward_problem.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace falchion::tools {
namespace {

/// Pairs of a query and a key that a sample may have: the definition in double takes about a microsecond for each.
constexpr std::int64_t kSampledPairs = 1 << 18;

Instance make_inputs(const ladder::Problem& p, DType dtype, std::uint64_t seed) {
  Instance out;
  out.problem = attention_of(p, dtype);
  out.q = make_random(dtype, {p.b, p.s_q, p.h, p.d}, seed);
  out.k = make_random(dtype, {p.b, p.s_k, p.h, p.d}, seed + 1);
  out.v = make_random(dtype, {p.b, p.s_k, p.h, p.d}, seed + 2);
  return out;
}

/// As many lines of `all` as the sample may have.
std::int64_t sampled_lines(const ladder::Problem& p, std::int64_t all, std::int64_t others) {
  return std::min(std::max<std::int64_t>(kSampledPairs / (sampled_heads(p) * std::max<std::int64_t>(others, 1)), 1),
                  all);
}

}  // namespace

BackwardLadderProblem::BackwardLadderProblem(Side side, const ladder::Problem& problem, std::uint64_t seed)
    : side_(side),
      problem_(problem),
      inputs_(make_inputs(problem, dtype(), seed)),
      given_(make_backward_inputs(inputs_, seed)),
      q_(side, inputs_.q.memory.size()),
      k_(side, inputs_.k.memory.size()),
      v_(side, inputs_.v.memory.size()),
      o_(side, given_.o.memory.size()),
      grad_o_(side, given_.grad_o.memory.size()),
      lse_(side, given_.lse.memory.size()),
      grad_q_(side, q_.size()),
      grad_k_(side, k_.size()),
      grad_v_(side, v_.size()),
      rows_(
          part_of({problem, sampled_heads(problem), sampled_lines(problem, problem.s_q, problem.s_k), problem.s_k}, 2)),
      keys_(part_of({problem, sampled_heads(problem), problem.s_q, sampled_lines(problem, problem.s_k, problem.s_q)},
                    1)) {
  q_.put(inputs_.q.memory.data());
  k_.put(inputs_.k.memory.data());
  v_.put(inputs_.v.memory.data());
  o_.put(given_.o.memory.data());
  grad_o_.put(given_.grad_o.memory.data());
  lse_.put(given_.lse.memory.data());
}

BackwardLadderProblem::Part BackwardLadderProblem::part_of(const Sample& sample, std::uint8_t frozen) const {
  Part out{.sample = sample, .inputs = {}, .given = {}, .reference = nullptr};
  Instance& inputs = out.inputs;
  inputs.problem = sample.attention(dtype());
  inputs.problem.frozen = frozen;
  inputs.q = sample.rows_of(inputs_.q);
  inputs.k = sample.keys_of(inputs_.k);
  inputs.v = sample.keys_of(inputs_.v);
  inputs.mask = sample.mask();
  out.given.o = sample.rows_of(given_.o);
  out.given.grad_o = sample.rows_of(given_.grad_o);
  out.given.lse = sample.statistics_of(given_.lse);
  Operands x = inputs.operands();
  out.given.attach(&x);
  const GradientOutputs shapes(inputs);
  shapes.attach(&x);
  out.reference = std::make_unique<judge::GradientReference>(inputs.problem, x);
  return out;
}

Operands BackwardLadderProblem::operands() const {
  const auto like = [](const SideMemory& memory, const HostTensor& x) {
    return Tensor::dense(memory.data(), x.view.dtype, x.view.shape);
  };
  Operands x;
  x.q = like(q_, inputs_.q);
  x.k = like(k_, inputs_.k);
  x.v = like(v_, inputs_.v);
  x.o = like(o_, given_.o);
  x.lse = like(lse_, given_.lse);
  x.grad_o = like(grad_o_, given_.grad_o);
  x.grad_q = like(grad_q_, inputs_.q);
  x.grad_k = like(grad_k_, inputs_.k);
  x.grad_v = like(grad_v_, inputs_.v);
  return x;
}

ladder::backward::Tensors BackwardLadderProblem::tensors(void* workspace) const {
  return {.q = q_.data(),
          .k = k_.data(),
          .v = v_.data(),
          .o = o_.data(),
          .grad_o = grad_o_.data(),
          .lse = static_cast<const float*>(lse_.data()),
          .grad_q = grad_q_.data(),
          .grad_k = grad_k_.data(),
          .grad_v = grad_v_.data(),
          .workspace = workspace};
}

void BackwardLadderProblem::poison() const {
  for (const SideMemory* gradient : {&grad_q_, &grad_k_, &grad_v_}) gradient->poison();
}

Verdict BackwardLadderProblem::check() const {
  Verdict verdict;
  verdict.ran = true;
  using judge::Gradient;
  for (const Gradient which : {Gradient::q, Gradient::k, Gradient::v}) {
    const bool of_rows = which == Gradient::q;
    const SideMemory& memory = of_rows ? grad_q_ : which == Gradient::k ? grad_k_ : grad_v_;
    const HostTensor all = make_tensor(dtype(), of_rows ? inputs_.q.view.shape : inputs_.k.view.shape);
    memory.get(all.memory.data());
    const Part& part = of_rows ? rows_ : keys_;
    const HostTensor sampled = of_rows ? part.sample.rows_of(all) : part.sample.keys_of(all);
    ErrorReport report = part.reference->check(which, sampled.view);
    const char* name = judge::kGradientNames[static_cast<std::size_t>(which)];
    const std::int64_t bad = count_not_finite(all);
    if (report.passed() && bad > 0)
      report.why = fmt::format("{} elements of {} were not written, or are not finite", bad, name);
    verdict.add(name, report);
  }
  return verdict;
}

std::string BackwardLadderProblem::what_is_checked() const {
  return fmt::format(
      "Error: the worst of dQ of {}, and of dK and dV of {}, against the definition in double; all other elements only "
      "for having been written",
      rows_.sample.text_of_rows(), keys_.sample.text_of_keys());
}

}  // namespace falchion::tools
