// tests/support/norm_backward.cpp: implements norm_backward.hpp.
#include "support/norm_backward.hpp"
#include "api/data_of.hpp"

#include "judge/norm_backward.hpp"
#include "plan/norm.hpp"
#include "problem/device_copy.hpp"
#include "ref/norm_backward.hpp"
#include "support/compare.hpp"

namespace falchion::testing {

NormOperands NormGradients::operands() const {
  NormOperands o;
  o.x = x.view();
  o.weight = weight.view();
  o.grad_y = grad_y.view();
  o.grad_residual_out = grad_residual_out.view();
  o.grad_x = grad_x.view();
  o.grad_weight = grad_weight.view();
  o.grad_bias = grad_bias.view();
  return o;
}

NormGradients make_norm_gradients(const NormGradientCase& row, DType dtype, std::uint64_t seed) {
  NormGradients out;
  Norm& n = out.problem = row.terms;
  n.dtype = dtype;
  n.rows = row.b * row.s * row.h;
  n.d = row.d;
  out.over = row.over;
  const Shape all{row.b, row.s, row.h, row.d};
  const auto with_d = [&](Shape shape) {
    shape[3] = row.d;
    return shape;
  };
  const auto input = [&](DType type, const Shape& shape, Layout layout, HostTensor* tensor) {
    *tensor = HostTensor(type, shape, layout);
    tensor->fill_normal(seed++);
  };
  const auto output = [](DType type, const Shape& shape, Layout layout, HostTensor* tensor) {
    *tensor = HostTensor(type, shape, layout == Layout::reversed ? Layout::dense : layout);
    tensor->fill_poison();
  };
  const DType factors = row.factors == DType::as_q ? dtype : row.factors;
  input(dtype, all, row.layout, &out.x);
  if (n.weight) input(factors, with_d(row.weight), Layout::dense, &out.weight);
  input(dtype_of_y(n), all, row.layout, &out.grad_y);
  if (n.residual_out) input(dtype_of_residual(n), all, row.layout, &out.grad_residual_out);
  if (ref::wants_grad_x(n)) output(dtype, all, row.layout, &out.grad_x);
  if (ref::wants_grad_weight(n)) output(factors, with_d(row.weight), Layout::dense, &out.grad_weight);
  if (n.bias) output(factors, with_d(row.bias), Layout::dense, &out.grad_bias);
  if (row.over == Over::x) out.grad_x = out.x;
  if (row.over == Over::grad_y) out.grad_x = out.grad_y;
  if (row.over == Over::grad_residual_out) out.grad_x = out.grad_residual_out;
  return out;
}

NormGradients copy_of(const NormGradients& from) {
  NormGradients out = from;
  for (HostTensor NormGradients::*tensor :
       {&NormGradients::x, &NormGradients::grad_y, &NormGradients::grad_residual_out}) {
    const HostTensor& source = from.*tensor;
    if (source.memory_bytes() == 0) continue;
    (out.*tensor) = source.like();
    source.for_each([&](auto... at) { (out.*tensor).set(at..., source.get(at...)); });
  }
  return out;
}

Status run(const Target& target, const NormGradients& x) {
  Plan plan;
  if (Status status = Plan::make(x.problem, Pass::backward, target, &plan); !status) return status;
  return run(plan, x);
}

Status run(const Plan& plan, const NormGradients& x) {
  if (Path{data_of(plan)->backend, ""}.on_gpu()) {
    std::vector<cuda::Bytes> whole;
    for (const HostTensor* tensor :
         {&x.x, &x.weight, &x.grad_y, &x.grad_residual_out, &x.grad_x, &x.grad_weight, &x.grad_bias})
      if (tensor->memory_bytes() > 0) whole.push_back({tensor->memory(), tensor->memory_bytes()});
    return cuda::run_on_device(plan, x.problem, x.operands(), whole);
  }
  const Workspace workspace(plan.workspace_bytes());
  return plan.run(x.operands(), workspace.data(), workspace.size());
}

::testing::AssertionResult matches(const NormGradients& x, const NormGradients& fresh) {
  const auto all = [](auto...) { return true; };
  const std::pair<const char*, const HostTensor*> sums[] = {{"grad_weight", &x.grad_weight},
                                                            {"grad_bias", &x.grad_bias}};
  for (const auto& [name, tensor] : sums)
    if (const auto whole = written_whole(name, *tensor, all); !whole) return whole;
  if (x.over == Over::nothing)
    if (const auto whole = written_whole("grad_x", x.grad_x, all); !whole) return whole;
  const std::string why = judge::NormBackwardReference(x.problem, fresh.operands()).check(x.operands());
  if (why.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << why;
}

}  // namespace falchion::testing
