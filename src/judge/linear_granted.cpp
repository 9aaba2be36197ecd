// src/judge/linear_granted.cpp: the error that any computation of linear attention in these types may have where its
// sums cancel. It follows from how far nudged inputs move the definition, and from the terms of the gradient of a
// decay.
#include <cmath>
#include <limits>
#include <memory>

#include "judge/linear_attention.hpp"
#include "judge/nudge.hpp"
#include "ref/linear_attention.hpp"

namespace falchion::judge {
namespace {

/// The error granted to phi(q) . dphi(q), as a share of the root of the sum of the squares of its terms: 3.8e-6, where
/// a gradient of q has a limit of 5e-6. On an H200 the worst of 300,000 problems in f32 had an error of 2.1e-6, and the
/// next ones a third of that.
constexpr double kSum = 0x1p-18;

/// The logarithm of 2^-126, which is f32's smallest normal number. Below it e^g is 0 on GPUs.
constexpr double kLowestDecay = -87.33654475055310899;

}  // namespace

/// The RMS of scale phi(q) z over all tokens: the recurrence with v = 1 and with z as its initial state.
double LinearReference::typical_divisor() const {
  LinearAttention a = problem_;
  a.d_v = 1;
  a.normalise = a.final_state = false;
  const auto& n = inputs_.q.shape;
  // A row outside of all sequences stays NaN, and does not count.
  std::vector<float> ones{1};
  std::vector<float> o(static_cast<std::size_t>(n[0] * n[1] * a.h_v) + 1, std::numeric_limits<float>::quiet_NaN());
  LinearOperands x = inputs_;
  x.v = Tensor{ones.data(), DType::f32, {n[0], n[1], a.h_v, 1}, {0, 0, 0, 1}};
  x.o = Tensor::dense(o.data(), DType::f32, {n[0], n[1], a.h_v, 1});
  x.initial_state = x.initial_z;
  std::vector<double> memory(ref::linear_attention_workspace(a, Pass::forward) / sizeof(double) + 1);
  ref::linear_attention_forward(a, x, memory.data());
  double sum = 0, count = 0;
  for (const float z : o)
    if (std::isfinite(z)) {
      sum += static_cast<double>(z) * z;
      ++count;
    }
  return std::sqrt(sum / count);
}

/// The gradient of each token's own decay, dense (rows, h_v), and the terms that it is summed from
/// (ref::linear_attention_backward).
LinearReference::DecaySums LinearReference::decay_sums() const {
  LinearAttention a = problem_;
  a.decay = Decay::token;
  LinearOperands x = inputs_;
  x.grad_decay.shape = {x.q.shape[0], x.q.shape[1], a.h_v, 1};
  if (problem_.decay == Decay::head) x.decay.stride[0] = x.decay.stride[1] = 0;
  x.decay.shape = x.grad_decay.shape;
  Outputs out;
  DecaySums sums;
  sums.terms.resize(static_cast<std::size_t>(x.q.shape[0] * x.q.shape[1] * a.h_v) + 1);
  compute(a, x, &out, sums.terms.data());
  sums.gradients = std::move(out.memory[static_cast<std::size_t>(LinearOutput::grad_decay)]);
  return sums;
}

/// The RMS of the error of the decay's gradient from its terms. Kernels that process tokens in chunks do not keep the
/// states, so they compute the gradient of a token's decay as a sum over all later tokens. Each of these is granted an
/// error of kSum of its term, of either sign. The gradient of a decay by head is the sum over all tokens, and each of
/// those is also granted its own limit.
double LinearReference::error_of_decay() const {
  const DecaySums sums = decay_sums();
  const bool of_head = problem_.decay == Decay::head;
  double all = 0, values = 0;
  for (std::int64_t b = 0; b < problem_.b; ++b) {
    const ref::Rows rows = ref::rows_of(b, problem_.packed ? inputs_.cu_seqlens : nullptr, nullptr, inputs_.q.shape[1]);
    for (std::int64_t h = 0; h < problem_.h_v; ++h) {
      double later = 0;
      for (std::int64_t j = rows.length - 1; j >= 0; --j) {
        const std::int64_t row = rows.begin + (problem_.reverse ? rows.length - 1 - j : j);
        const auto at = static_cast<std::size_t>((rows.batch * inputs_.q.shape[1] + row) * problem_.h_v + h);
        const double off = kSum * std::sqrt(sums.terms[at]), gradient = sums.gradients[at];
        if (!std::isfinite(off) || !std::isfinite(gradient)) continue;
        later += off * off;
        values += gradient * gradient;
        all += of_head ? off * off * static_cast<double>((j + 1) * (j + 1)) : later;
      }
    }
  }
  const double count = static_cast<double>(of_head ? problem_.h_v : problem_.h_v * tokens_ * inputs_.q.shape[0]);
  if (count == 0) return 0;
  double rms = std::sqrt(all / count);
  if (of_head) rms += linear_limit(problem_.dtype, Decay::token, LinearOutput::grad_decay) * std::sqrt(values / count);
  return rms;
}

void LinearReference::add_movement(const Outputs& moved) const {
  for (std::size_t i = 0; i < kLinearOutputs; ++i) {
    const auto which = static_cast<LinearOutput>(i);
    if (!has(which)) continue;
    double sum = 0, count = 0, largest = 0;
    each(which, exact(which), [&](double, double wanted, std::int64_t at, const auto&) {
      const double by = std::abs(static_cast<double>(moved.memory[i][static_cast<std::size_t>(at)]) - wanted);
      if (!std::isfinite(by)) return;
      sum += by * by;
      ++count;
      largest = std::max(largest, by);
    });
    if (count > 0) granted_[i].include(2 * std::sqrt(sum / count), 2 * largest);
  }
}

/// Nudges the inputs. 16-bit numbers are nudged by a quarter of their unit, which is the mean effect of rounding them
/// once more, as for a state or a weight that goes through a tensor core. f32 numbers are nudged by four units, the
/// roundings of a few steps. g is nudged by one unit, and each e^g by a rounding of f32. The divisor of a normalised
/// output is nudged like the inputs, since a kernel rounds the weights in o but not those in its divisor. In f32 the
/// divisor is nudged further if d_v is large: its gradient is a sum of d_v products of o and grad_o, which drifts by
/// about half the root of d_v roundings, and where o is nearly v nothing else is left.
void LinearReference::nudge() const {
  const bool single = problem_.dtype == DType::f32;
  const double step = unit_at(problem_.dtype, 1) * (single ? 4 : 0.25);
  const double drift =
      single ? std::sqrt(static_cast<double>(problem_.d_v)) / 8 : 0;  // half the root, in steps of four
  const double divisor = problem_.normalise ? typical_divisor() * (1 + drift) : 0;
  for (std::uint64_t draw = 0; draw < kNudges; ++draw) {
    LinearOperands x = inputs_;
    LinearAttention a = problem_;
    a.eps += static_cast<float>(divisor * step * nudge_sign(draw, 1000));
    std::vector<std::unique_ptr<Nudged>> inputs;
    for (Tensor* input : {&x.q, &x.k, &x.v, &x.grad_o, &x.initial_state, &x.initial_z, &x.grad_final_state,
                          &x.grad_final_z, &x.decay}) {
      const Step by = input == &x.decay ? Step{0x1p-23, 0x1p-24} : Step{step};
      inputs.push_back(std::make_unique<Nudged>(*input, by, Together::none, 100 * draw + inputs.size()));
      *input = inputs.back()->view();
    }
    Outputs moved;
    compute(a, x, &moved);
    add_movement(moved);
  }
}

/// A number that has faded to less than 2^-126 of itself may be lost. If it fades over many tokens, the loss is at most
/// 2^-126 of the largest value that there would be without a decay. But a single e^g below 2^-126 may already be 0.
/// With a normaliser its factor can be larger than any value without a decay, because without a decay o is divided by a
/// longer sum. So that loss is computed separately.
void LinearReference::grant_what_fades() const {
  LinearOperands x = inputs_;
  const Changed lost(x.decay, [](double g, std::uint64_t, std::uint64_t) { return g < kLowestDecay ? 2 * g : g; });
  x.decay = lost.view();
  Outputs without;
  compute(problem_, x, &without);
  add_movement(without);
  const Changed none(x.decay, [](double, std::uint64_t, std::uint64_t) { return 0; });
  x.decay = none.view();
  Outputs unfaded;
  compute(problem_, x, &unfaded);
  for (std::size_t i = 0; i < kLinearOutputs; ++i) {
    double largest = 0;
    for (const float value : unfaded.memory[i])
      if (std::isfinite(value)) largest = std::max(largest, std::abs(double{value}));
    granted_[i].include(lowest_unit(DType::f32) * largest, lowest_unit(DType::f32) * largest);
  }
}

LinearReference::Granted LinearReference::granted(LinearOutput which) const {
  if (!nudged_) {
    nudged_ = true;
    nudge();
    if (problem_.decay != Decay::none) grant_what_fades();
    if (has(LinearOutput::grad_decay)) {
      Granted& of_decay = granted_[static_cast<std::size_t>(LinearOutput::grad_decay)];
      const double rms = error_of_decay();
      of_decay.include(rms, 10 * rms);
    }
  }
  return granted_[static_cast<std::size_t>(which)];
}

}  // namespace falchion::judge
