// tools/problem/linear_instance.cpp
#include "problem/linear_instance.hpp"

#include <cmath>

namespace falchion::tools {
namespace {

HostTensor make_decay(const LinearProblem& a, std::uint64_t seed) {
  const bool head = a.decay == Decay::head;
  HostTensor x = make_random(DType::f32, {head ? 1 : a.b, head ? 1 : a.s, a.h_v, 1}, seed);
  float* g = x.memory.as<float>();
  for (std::int64_t i = 0; i < element_count(x.view.shape); ++i)
    g[i] = head ? std::log1p(-std::exp2(-5.F - static_cast<float>(i))) : -std::abs(g[i]) / 10;
  return x;
}

}  // namespace

LinearOperands LinearInstance::operands() const {
  LinearOperands x;
  x.q = q.view;
  x.k = k.view;
  x.v = v.view;
  x.o = o.view;
  x.decay = decay.view;
  x.grad_o = grad_o.view;
  x.grad_decay = grad_decay.view;
  x.grad_q = grad_q.view;
  x.grad_k = grad_k.view;
  x.grad_v = grad_v.view;
  return x;
}

std::vector<const HostTensor*> LinearInstance::outputs() const {
  std::vector<const HostTensor*> out;
  for (const HostTensor* x : {&o, &grad_q, &grad_k, &grad_v})
    if (x->view.data != nullptr) out.push_back(x);
  return out;
}

LinearInstance make_linear_instance(const LinearProblem& a, std::uint64_t seed, Layout layout) {
  const Shape qk{a.b, a.s, a.h_qk, a.d_qk}, vo{a.b, a.s, a.h_v, a.d_v};
  LinearInstance x;
  x.q = make_random(a.dtype, qk, seed, layout);
  x.k = make_random(a.dtype, qk, seed + 1, layout);
  x.v = make_random(a.dtype, vo, seed + 2, layout);
  if (a.decay != Decay::none) x.decay = make_decay(a, seed + 3);
  if (a.pass == Pass::forward) {
    x.o = make_poisoned(a.dtype, vo, layout);
    return x;
  }
  x.grad_o = make_random(a.dtype, vo, seed + 4, layout);
  x.grad_q = make_poisoned(a.dtype, qk, layout);
  x.grad_k = make_poisoned(a.dtype, qk, layout);
  x.grad_v = make_poisoned(a.dtype, vo, layout);
  if (a.decay != Decay::none) x.grad_decay = make_poisoned(DType::f32, x.decay.view.shape);
  return x;
}

}  // namespace falchion::tools
