// tools/problem/backward.cpp
#include "problem/backward.hpp"

#include <cstring>

#include "tool.hpp"

namespace falchion::tools {
namespace {

/// The problem that o and lse are the results of.
Attention forward_of(const Instance& instance) {
  Attention a = instance.problem;
#define FALCHION_FORWARD_FIELD(kind, key, member, option, text) a.member = false;
#include "base/fields.def"
  a.lse = true;
  return a;
}

/// Without a kernel for the problem in this build `best` refuses; then the definition computes it.
Target forward_target(const Attention& a) {
  Plan plan;
  return Plan::make(a, Pass::forward, Backend::best, &plan) ? Backend::best : Backend::ref;
}

}  // namespace

void make_state(const Instance& instance, Layout layout, BackwardInputs* out) {
  const Attention a = forward_of(instance);
  const Shape& q = instance.q.view.shape;
  out->o = make_poisoned(a.dtype, {q[0], q[1], q[2], a.d_v}, layout);
  out->lse = make_poisoned(DType::f32, {q[0], q[2], q[1], 1});
  Operands x = instance.operands();
  x.o = out->o.view;
  x.lse = out->lse.view;
  require(Prepared(a, forward_target(a)).run(x), "the forward pass, which makes o and lse");
}

BackwardInputs make_backward_inputs(const Instance& instance, std::uint64_t seed, Layout layout) {
  BackwardInputs out;
  make_state(instance, layout, &out);
  out.grad_o = make_random(instance.problem.dtype, out.o.view.shape, seed + 5, layout);
  if (instance.problem.grad_lse) out.grad_lse = make_random(DType::f32, out.lse.view.shape, seed + 6);
  return out;
}

GradientOutputs::GradientOutputs(const Instance& x, Layout layout) {
  const Attention& a = x.problem;
  const DType dtype = a.grads == Grads::rounded ? a.dtype : DType::f32;
  const auto make = [&](judge::Gradient which, DType type, const Shape& shape, bool wanted) {
    if (wanted) all[static_cast<std::size_t>(which)] = make_poisoned(type, shape, layout);
  };
  using judge::Gradient;
  make(Gradient::q, dtype, x.q.view.shape, (a.frozen & 1) == 0);
  make(Gradient::k, dtype, x.k.view.shape, (a.frozen & 2) == 0);
  make(Gradient::v, dtype, x.v.view.shape, (a.frozen & 2) == 0);
  layout = Layout::bshd;  // the axes of these are other ones
  make(Gradient::bias, DType::f32, x.bias.view.shape, a.grad_bias);
  make(Gradient::alibi, DType::f32, {1, 1, a.h_q, 1}, a.grad_alibi);
  make(Gradient::sinks, DType::f32, {1, 1, a.h_q, 1}, a.grad_sinks);
  if (a.grads == Grads::accumulate) clear();
}

void GradientOutputs::attach(Operands* x) const {
  x->grad_q = all[0].view;
  x->grad_k = all[1].view;
  x->grad_v = all[2].view;
  x->grad_bias = all[3].view;
  x->grad_alibi = all[4].view;
  x->grad_sinks = all[5].view;
}

void GradientOutputs::clear() const {
  for (const HostTensor& t : all)
    if (t.memory.size() > 0) std::memset(t.memory.data(), 0, t.memory.size());
}

Operands BackwardReference::operands() const {
  Operands x = instance_.operands();
  inputs_.attach(&x);
  return x;
}

BackwardReference::BackwardReference(const Instance& instance, const BackwardInputs& inputs)
    : instance_(instance), inputs_(inputs), judge_([&] {
        Operands x = operands();
        const GradientOutputs shapes(instance);
        shapes.attach(&x);
        return judge::GradientReference(instance.problem, x);
      }()) {}

Verdict BackwardReference::verify(const Target& target) const {
  Verdict verdict;
  try {
    const Prepared prepared(instance_.problem, Pass::backward, target);
    const GradientOutputs outputs(instance_);
    Operands x = operands();
    outputs.attach(&x);
    const Status status = prepared.run(x);
    verdict.ran = static_cast<bool>(status);
    verdict.why = status.why;
    for (std::size_t n = 0; verdict.ran && n < judge::kGradients; ++n) {
      if (outputs.all[n].view.data == nullptr) continue;
      const auto which = static_cast<judge::Gradient>(n);
      verdict.add(judge::kGradientNames[n], judge_.check(which, outputs.all[n].view, prepared.on_gpu()));
    }
  } catch (const UsageError& refusal) { verdict.why = refusal.what; }
  return verdict;
}

}  // namespace falchion::tools
