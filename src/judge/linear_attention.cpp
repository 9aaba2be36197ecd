// src/judge/linear_attention.cpp: see linear_attention.hpp.
#include "judge/linear_attention.hpp"

#include <cstdio>
#include <memory>

#include "judge/nudge.hpp"
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

std::string number(double x) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.3g", x);
  return digits;
}

}  // namespace

const char* name(LinearOutput which) { return row_of(which).name; }
Tensor& tensor_of(LinearOutput which, LinearOperands* x) { return x->*row_of(which).tensor; }

double linear_limit(DType dtype, Decay decay, LinearOutput which) {
  struct Limits {
    double o, state, gradient, decay;
    double head;  // the gradient of a head's decay: a sum over all tokens of what largely cancels
  };
  const Limits x = dtype == DType::f32   ? Limits{5e-6, 5e-6, 5e-6, 2e-5, 5e-4}
                   : dtype == DType::f16 ? Limits{1e-3, 1e-3, 2e-3, 4e-3, 4e-3}
                                         : Limits{5e-3, 3e-3, 8e-3, 1e-2, 1e-2};
  if (which == LinearOutput::o) return x.o;
  if (which == LinearOutput::final_state || which == LinearOutput::final_z) return x.state;
  if (which == LinearOutput::grad_decay) return decay == Decay::head ? x.head : x.decay;
  return x.gradient;
}

LinearReference::LinearReference(const LinearAttention& problem, Pass pass, const LinearOperands& x)
    : problem_(problem), pass_(pass), inputs_(x), tokens_(x.q.shape[1]) {
  if (problem.packed) {
    tokens_ = problem.b > 0 ? std::clamp<std::int64_t>(x.cu_seqlens[problem.b], 0, x.q.shape[1]) : 0;
    problem_.s = x.q.shape[1] / std::max<std::int64_t>(problem.b, 1) + 1;  // the definition takes at most b * s tokens
  }
  compute(problem_, inputs_, &exact_);
}

void LinearReference::compute(const LinearAttention& a, const LinearOperands& inputs, Outputs* out) const {
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
    ref::linear_attention_backward(a, x, memory.data());
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

/// f(value, wanted, nth, index) for each element that is to be written.
template <class F>
void LinearReference::each(LinearOutput which, const Tensor& got, const F& f) const {
  const Tensor& exact = this->exact(which);
  const bool tokens = by_token(which);
  if (which == LinearOutput::grad_decay && problem_.decay == Decay::head && problem_.b == 0) return;
  for (std::int64_t i = 0; i < got.shape[0]; ++i)
    for (std::int64_t j = 0; j < got.shape[1]; ++j) {
      if (tokens && !is_row(j)) continue;
      for (std::int64_t k = 0; k < got.shape[2]; ++k)
        for (std::int64_t l = 0; l < got.shape[3]; ++l) {
          const std::int64_t at = ref::at(exact, i, j, k, l);
          f(ref::load(got, ref::at(got, i, j, k, l)), ref::load(exact, at), at,
            std::array<std::int64_t, 4>{i, j, k, l});
        }
    }
}

/// NaN or Inf in v may reach its column of o in earlier tokens of the same chunk, as 0 x NaN (docs/contract.md).
bool LinearReference::v_may_reach(LinearOutput which, const std::array<std::int64_t, 4>& at) const {
  if (which != LinearOutput::o) return false;
  for (std::int64_t j = 0; j < tokens_; ++j)
    if (!std::isfinite(ref::load(inputs_.v, ref::at(inputs_.v, at[0], j, at[2], at[3])))) return true;
  return false;
}

/// The RMS of scale phi(q) z over all tokens: the recurrence of a v that is always 1, from z as the initial state.
double LinearReference::typical_divisor() const {
  LinearAttention a = problem_;
  a.d_v = 1, a.normalise = a.final_state = false;
  const auto& n = inputs_.q.shape;
  std::vector<float> ones{1}, o(static_cast<std::size_t>(n[0] * n[1] * a.h_v) + 1);
  LinearOperands x = inputs_;
  x.v = Tensor{ones.data(), DType::f32, {n[0], n[1], a.h_v, 1}, {0, 0, 0, 1}};
  x.o = Tensor::dense(o.data(), DType::f32, {n[0], n[1], a.h_v, 1});
  x.initial_state = x.initial_z;
  std::vector<double> memory(ref::linear_attention_workspace(a, Pass::forward) / sizeof(double) + 1);
  ref::linear_attention_forward(a, x, memory.data());
  double sum = 0, count = 0;
  for (const float z : o)
    if (std::isfinite(z)) sum += static_cast<double>(z) * z, ++count;
  return std::sqrt(sum / count);
}

/// The RMS over heads of what errors of the tokens add up to in the gradient of a head's decay, which may be next to 0
/// by luck. Every token's gradient may be off by its own limit. It is also a sum over all later tokens of what each of
/// them adds, so a rounding there, two units of f32, comes again for every token before it.
double LinearReference::error_of_all_tokens() const {
  LinearAttention a = problem_;
  a.decay = Decay::token;
  LinearOperands x = inputs_;
  const std::array<std::int64_t, 4> shape{x.q.shape[0], x.q.shape[1], a.h_v, 1};
  x.decay.shape = x.grad_decay.shape = shape;
  x.decay.stride[0] = x.decay.stride[1] = 0;
  Outputs tokens;
  compute(a, x, &tokens);
  const auto& dg = tokens.memory[static_cast<std::size_t>(LinearOutput::grad_decay)];
  const auto h_v = static_cast<std::size_t>(a.h_v);
  double sum = 0, added = 0;
  for (std::size_t i = 0; i < dg.size(); ++i) {
    if (!std::isfinite(dg[i])) continue;
    const double next = i + h_v < dg.size() && std::isfinite(dg[i + h_v]) ? dg[i + h_v] : 0;
    sum += static_cast<double>(dg[i]) * dg[i], added += (dg[i] - next) * (dg[i] - next);
  }
  const double of_tokens =
      linear_limit(a.dtype, a.decay, LinearOutput::grad_decay) * std::sqrt(sum / static_cast<double>(a.h_v));
  return of_tokens + 0x1p-22 * static_cast<double>(tokens_) * std::sqrt(added / static_cast<double>(a.h_v));
}

/// 16-bit numbers by a quarter of their unit, the mean of what rounding them once more does (a state or a weight that
/// goes through a tensor core); f32 by four units, the roundings of a few steps; decays by one unit; the divisor of a
/// normalised output likewise, since a kernel rounds the weights of o but not those that it divides by.
void LinearReference::nudge() const {
  if (nudged_) return;
  nudged_ = true;
  const double step = unit_at(problem_.dtype, 1) * (problem_.dtype == DType::f32 ? 4 : 0.25);
  if (has(LinearOutput::grad_decay) && problem_.decay == Decay::head && problem_.h_v > 0) {
    Moved& moved = moved_[static_cast<std::size_t>(LinearOutput::grad_decay)];
    moved.rms = error_of_all_tokens() / 2;
    moved.largest = 10 * moved.rms;
  }
  const double divisor = problem_.normalise ? typical_divisor() : 0;
  for (std::uint64_t draw = 0; draw < kNudges; ++draw) {
    LinearOperands x = inputs_;
    LinearAttention a = problem_;
    a.eps += static_cast<float>(divisor * step * nudge_sign(draw, 1000));
    std::vector<std::unique_ptr<Nudged>> inputs;
    for (Tensor* input : {&x.q, &x.k, &x.v, &x.grad_o, &x.initial_state, &x.initial_z, &x.grad_final_state,
                          &x.grad_final_z, &x.decay}) {
      const double by = input == &x.decay ? 0x1p-23 : step;
      inputs.push_back(std::make_unique<Nudged>(*input, by, Together::none, 100 * draw + inputs.size()));
      *input = inputs.back()->view();
    }
    Outputs moved;
    compute(a, x, &moved);
    for (std::size_t i = 0; i < kLinearOutputs; ++i) {
      const auto which = static_cast<LinearOutput>(i);
      if (!has(which)) continue;
      double sum = 0, count = 0;
      each(which, exact(which), [&](double, double wanted, std::int64_t at, const auto&) {
        const double by = std::abs(static_cast<double>(moved.memory[i][static_cast<std::size_t>(at)]) - wanted);
        if (!std::isfinite(by)) return;
        sum += by * by, ++count;
        moved_[i].largest = std::max(moved_[i].largest, by);
      });
      if (count > 0) moved_[i].rms = std::max(moved_[i].rms, std::sqrt(sum / count));
    }
  }
}

LinearReport LinearReference::check(LinearOutput which, const Tensor& got) const {
  LinearReport report;
  report.limit = linear_limit(problem_.dtype, problem_.decay, which);
  const auto place = [&](const std::array<std::int64_t, 4>& at) {
    std::string out = std::string(name(which)) + "[";
    for (std::size_t axis = 0; axis < 4; ++axis) out += (axis > 0 ? ", " : "") + std::to_string(at[axis]);
    return out + "]";
  };
  double error = 0, sum = 0, count = 0;
  each(which, got, [&](double value, double wanted, std::int64_t, const auto& at) {
    const bool alike = same_special(got.dtype, value, wanted) || (!std::isfinite(wanted) && !std::isfinite(value));
    if (!alike && report.why.empty() && !v_may_reach(which, at))
      report.why = place(at) + " is " + number(value) + ", must be " + number(wanted);
    if (!std::isfinite(wanted) || !std::isfinite(value)) return;
    sum += wanted * wanted, error += (value - wanted) * (value - wanted), ++count;
  });
  if (!report.why.empty() || count == 0) return report;
  const double rms = std::sqrt(sum / count), error_rms = std::sqrt(error / count);
  report.error = rms > 0 ? error_rms / rms : error_rms > 0 ? 1e300 : 0;
  Moved moved;
  const auto judged = [&] {
    std::string why;
    if (error_rms > std::max(report.limit * rms, 2 * moved.rms) && error_rms > 1e-6 / std::sqrt(count)) {
      why = std::string(name(which)) + ": the RMS of the error is ";
      why += rms > 0 ? number(report.error) + " of the values', at most " +
                           number(std::max(report.limit, 2 * moved.rms / rms))
                     : number(error_rms) + ", and all values must be 0";
    }
    each(which, got, [&](double value, double wanted, std::int64_t, const auto& at) {
      if (!why.empty() || !std::isfinite(wanted) || !std::isfinite(value)) return;
      const double most = 10 * report.limit * std::max(rms, std::abs(wanted)) + 1e-6;
      if (std::abs(value - wanted) <= std::max(most, 2 * moved.largest)) return;
      why = place(at) + " is " + number(value) + ", must be " + number(wanted) + " (the RMS is " + number(rms) + ")";
    });
    return why;
  };
  report.why = judged();
  if (report.passed()) return report;
  nudge();
  moved = moved_[static_cast<std::size_t>(which)];
  report.why = judged();
  return report;
}

}  // namespace falchion::judge
