// src/judge/linear_attention.cpp: compares results of linear attention with the recurrence in double.
#include "judge/linear_attention.hpp"

#include "judge/nudge.hpp"
#include "judge/words.hpp"
#include "ref/elements.hpp"
#include "ref/linear_attention.hpp"

namespace falchion::judge {
namespace {

struct OutputRow {
  const char* name;
  Tensor LinearOperands::*tensor;
  Pass pass;
};
constexpr OutputRow kRows[] = {
    {"o", &LinearOperands::o, Pass::forward},
    {"final_state", &LinearOperands::final_state, Pass::forward},
    {"final_z", &LinearOperands::final_z, Pass::forward},
    {"grad_q", &LinearOperands::grad_q, Pass::backward},
    {"grad_k", &LinearOperands::grad_k, Pass::backward},
    {"grad_v", &LinearOperands::grad_v, Pass::backward},
    {"grad_decay", &LinearOperands::grad_decay, Pass::backward},
    {"grad_initial_state", &LinearOperands::grad_initial_state, Pass::backward},
    {"grad_initial_z", &LinearOperands::grad_initial_z, Pass::backward},
};
const OutputRow& row_of(LinearOutput which) { return kRows[static_cast<std::size_t>(which)]; }

}  // namespace

const char* name(LinearOutput which) { return row_of(which).name; }
Tensor& tensor_of(LinearOutput which, LinearOperands* x) { return x->*row_of(which).tensor; }

double linear_limit(DType dtype, Decay decay, LinearOutput which) {
  struct Limits {
    double o, state, gradient, decay;
    double head;  // the gradient of a decay by head, a sum over all tokens whose terms largely cancel
  };
  const Limits x = dtype == DType::f32   ? Limits{5e-6, 5e-6, 5e-6, 2e-5, 5e-4}
                   : dtype == DType::f16 ? Limits{1e-3, 1e-3, 2e-3, 4e-3, 4e-3}
                                         : Limits{5e-3, 3e-3, 8e-3, 1e-2, 1e-2};
  if (which == LinearOutput::o) return x.o;
  if (which == LinearOutput::final_state || which == LinearOutput::final_z) return x.state;
  if (which == LinearOutput::grad_decay) return decay == Decay::head ? x.head : x.decay;
  return x.gradient;
}

LinearReference::LinearReference(const LinearAttention& problem, Pass pass, const LinearOperands& x, Exact exact)
    : problem_(problem), pass_(pass), inputs_(x), tokens_(x.q.shape[1]) {
  if (problem.packed) {
    tokens_ = problem.b > 0 ? std::clamp<std::int64_t>(x.cu_seqlens[problem.b], 0, x.q.shape[1]) : 0;
    problem_.s = x.q.shape[1] / std::max<std::int64_t>(problem.b, 1) + 1;  // the definition takes at most b * s tokens
  }
  if (exact == Exact::given) {
    take(x);
  } else {
    compute(problem_, inputs_, &exact_);
  }
}

void LinearReference::take(const LinearOperands& given) {
  LinearOperands x = given;
  for (std::size_t i = 0; i < kLinearOutputs; ++i) {
    const auto which = static_cast<LinearOutput>(i);
    if (!has(which)) continue;
    const Tensor& from = tensor_of(which, &x);
    exact_.views[i] = Tensor::dense(nullptr, DType::f32, from.shape);
    for_each_index(from.shape, [&](const Index& at) {
      exact_.memory[i].push_back(ref::load(from, ref::at(from, at[0], at[1], at[2], at[3])));
    });
    exact_.memory[i].push_back(0);  // so that there is an address even without elements
    exact_.views[i].data = exact_.memory[i].data();
  }
}

void LinearReference::compute(const LinearAttention& a, const LinearOperands& inputs, Outputs* out,
                              double* decay_terms) const {
  LinearOperands x = inputs;
  for (std::size_t i = 0; i < kLinearOutputs; ++i) {
    const auto which = static_cast<LinearOutput>(i);
    if (!has(which)) continue;
    const auto& n = tensor_of(which, &x).shape;
    out->memory[i].assign(static_cast<std::size_t>(n[0] * n[1] * n[2] * n[3]) + 1,
                          std::numeric_limits<float>::quiet_NaN());
    out->views[i] = tensor_of(which, &x) = Tensor::dense(out->memory[i].data(), DType::f32, n);
  }
  std::vector<double> memory(ref::linear_attention_workspace(a, pass_) / sizeof(double) + 1);
  if (pass_ == Pass::forward) {
    ref::linear_attention_forward(a, x, memory.data());
  } else {
    ref::linear_attention_backward(a, x, memory.data(), decay_terms);
  }
}

bool LinearReference::has(LinearOutput which) const {
  const LinearAttention& a = problem_;
  if (row_of(which).pass != pass_) return false;
  switch (which) {
    case LinearOutput::final_state: return a.final_state;
    case LinearOutput::final_z: return a.final_state && a.normalise;
    case LinearOutput::grad_decay: return a.decay != Decay::none;
    case LinearOutput::grad_initial_state: return a.initial_state;
    case LinearOutput::grad_initial_z: return a.initial_state && a.normalise;
    default: return true;
  }
}

bool LinearReference::by_token(LinearOutput which) const {
  switch (which) {
    case LinearOutput::o:
    case LinearOutput::grad_q:
    case LinearOutput::grad_k:
    case LinearOutput::grad_v: return true;
    case LinearOutput::grad_decay: return problem_.decay == Decay::token;
    default: return false;
  }
}

/// Whether token `j` may come after `row` in the same chunk, as one of at most 255 tokens of its sequence.
bool LinearReference::may_share_chunk(std::int64_t row, std::int64_t j) const {
  constexpr std::int64_t kLongestChunk = 256;
  const std::int64_t behind = problem_.reverse ? row - j : j - row;
  if (behind <= 0 || behind >= kLongestChunk) return false;
  const std::int32_t* cu = problem_.packed ? inputs_.cu_seqlens : nullptr;
  for (std::int64_t b = 0; cu != nullptr && b < problem_.b; ++b)
    if (row < cu[b + 1]) return j >= cu[b] && j < cu[b + 1];
  return true;
}

/// Whether NaN or Inf in v may reach this element. Within a chunk 0 x NaN may reach that column of
/// o in earlier tokens (docs/contract.md).
bool LinearReference::v_may_reach(const Index& at) const {
  for (std::int64_t j = 0; j < tokens_; ++j) {
    const bool finite = std::isfinite(ref::load(inputs_.v, ref::at(inputs_.v, at[0], j, at[2], at[3])));
    if (!finite && may_share_chunk(at[1], j)) return true;
  }
  return false;
}

/// Whether terms may be infinite. A sum of infinite terms is Inf in one order and NaN in another, while a NaN among
/// finite terms always gives NaN.
bool LinearReference::has_infinities() const {
  if (problem_.normalise) return true;  // because a divisor may be 0
  for (const Tensor* x :
       {&inputs_.q, &inputs_.k, &inputs_.v, &inputs_.initial_state, &inputs_.grad_o, &inputs_.grad_final_state}) {
    bool any = false;
    for_each_index(x->shape, [&](const Index& at) {
      any = any || std::isinf(ref::load(*x, ref::at(*x, at[0], at[1], at[2], at[3])));
    });
    if (any) return true;
  }
  return false;
}

/// Whether this value is allowed, although the definition has another one.
bool LinearReference::excused(LinearOutput which, double value, double wanted, const Index& at, bool chunks) const {
  if (std::isinf(wanted)) return std::isnan(value);
  if (std::isnan(wanted)) return std::isinf(value) && has_infinities();
  return chunks && which == LinearOutput::o && std::isnan(value) && v_may_reach(at);
}

LinearReport LinearReference::check(LinearOutput which, const Tensor& got, bool chunks) const {
  LinearReport report;
  report.limit = linear_limit(problem_.dtype, problem_.decay, which);
  const double lowest = lowest_unit(got.dtype);
  const auto error_of = [&](double value, double wanted) { return std::max(std::abs(value - wanted) - lowest, 0.0); };
  double error = 0, sum = 0, count = 0;
  each(which, got, [&](double value, double wanted, std::int64_t, const Index& at) {
    if (report.why.empty() && !same_special(got.dtype, value, wanted) && !excused(which, value, wanted, at, chunks))
      report.why = mismatch(name(which), at, value, wanted);
    if (!std::isfinite(wanted) || !std::isfinite(value)) return;
    sum += wanted * wanted;
    error += error_of(value, wanted) * error_of(value, wanted);
    ++count;
  });
  if (!report.why.empty() || count == 0) return report;
  const double rms = std::sqrt(sum / count), error_rms = std::sqrt(error / count);
  report.error = rms > 0 ? error_rms / rms : error_rms > 0 ? 1e300 : 0;
  const auto judged = [&](const Granted& granted) {
    std::string why;
    if (error_rms > std::max(report.limit * rms, granted.rms)) {
      why = std::string(name(which)) + ": the RMS of the error is ";
      why += rms > 0 ? number(report.error) + " of the values', at most " +
                           number(std::max(report.limit, granted.rms / rms))
                     : number(error_rms) + ", at most " + number(granted.rms) + ", and all values must be 0";
    }
    each(which, got, [&](double value, double wanted, std::int64_t, const Index& at) {
      if (!why.empty() || !std::isfinite(wanted) || !std::isfinite(value)) return;
      const double most = 10 * report.limit * std::max(rms, std::abs(wanted));
      if (error_of(value, wanted) <= std::max(most, granted.largest)) return;
      why = mismatch(name(which), at, value, wanted) + " (the RMS is " + number(rms) + ")";
    });
    return why;
  };
  report.why = judged({});
  if (!report.passed()) report.why = judged(granted(which));
  return report;
}

}  // namespace falchion::judge
