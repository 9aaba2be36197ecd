// tests/support/norm.cpp: implements norm.hpp.
#include "support/norm.hpp"
#include "api/data_of.hpp"

#include "judge/norm.hpp"
#include "plan/norm.hpp"
#include "problem/device_copy.hpp"
#include "support/compare.hpp"

namespace falchion::testing {

NormOperands NormInstance::operands() const {
  NormOperands o;
  o.x = x.view();
  o.residual = residual.view();
  o.weight = weight.view();
  o.bias = bias.view();
  o.y = y.view();
  o.residual_out = residual_out.view();
  o.mean = mean.view();
  o.rstd = rstd.view();
  return o;
}

NormInstance make_norm_instance(const NormCase& row, DType dtype, std::uint64_t seed) {
  NormInstance out;
  Norm& n = out.problem = row.terms;
  n.dtype = dtype;
  n.rows = row.b * row.s * row.h;
  n.d = row.d;
  out.in_place = row.in_place;
  const Shape all{row.b, row.s, row.h, row.d}, rows{row.b, row.s, row.h, 1};
  const auto input = [&](DType type, Shape shape, Layout layout, HostTensor* tensor) {
    shape[3] = row.d;
    *tensor = HostTensor(type, shape, layout);
    tensor->fill_normal(seed++);
  };
  const auto output = [](DType type, const Shape& shape, Layout layout, HostTensor* tensor) {
    *tensor = HostTensor(type, shape, layout == Layout::reversed ? Layout::dense : layout);
    tensor->fill_poison();
  };
  const DType factors = row.factors == DType::as_q ? dtype : row.factors;
  input(dtype, all, row.layout, &out.x);
  if (n.residual) input(dtype_of_residual(n), all, row.layout, &out.residual);
  if (n.weight) input(factors, row.weight, Layout::dense, &out.weight);
  if (n.bias) input(factors, row.bias, Layout::dense, &out.bias);
  output(dtype_of_y(n), all, row.layout, &out.y);
  if (n.residual_out) output(dtype_of_residual(n), all, row.layout, &out.residual_out);
  if (row.in_place) {
    out.y = out.x;
    if (n.residual_out) out.residual_out = out.residual;
  }
  if (n.mean) output(DType::f32, rows, row.layout, &out.mean);
  if (n.rstd) output(DType::f32, rows, row.layout, &out.rstd);
  return out;
}

NormInstance copy_of(const NormInstance& from) {
  NormInstance out = from;
  for (HostTensor NormInstance::*tensor : {&NormInstance::x, &NormInstance::residual}) {
    const HostTensor& source = from.*tensor;
    if (source.memory_bytes() == 0) continue;
    (out.*tensor) = source.like();
    source.for_each([&](auto... at) { (out.*tensor).set(at..., source.get(at...)); });
  }
  return out;
}

Status run(const Target& target, const NormInstance& x) {
  Plan plan;
  if (Status status = Plan::make(x.problem, target, &plan); !status) return status;
  return run(plan, x);
}

Status run(const Plan& plan, const NormInstance& x) {
  if (Path{data_of(plan)->backend, ""}.on_gpu()) {
    std::vector<cuda::Bytes> whole;
    for (const HostTensor* tensor : {&x.x, &x.residual, &x.weight, &x.bias, &x.y, &x.residual_out, &x.mean, &x.rstd})
      if (tensor->memory_bytes() > 0) whole.push_back({tensor->memory(), tensor->memory_bytes()});
    return cuda::run_on_device(plan, x.problem, x.operands(), whole);
  }
  const Workspace workspace(plan.workspace_bytes());
  return plan.run(x.operands(), workspace.data(), workspace.size());
}

::testing::AssertionResult matches(const NormInstance& x, const NormInstance& fresh) {
  const auto all = [](auto...) { return true; };
  const std::pair<const char*, const HostTensor*> own[] = {{"mean", &x.mean}, {"rstd", &x.rstd}};
  const std::pair<const char*, const HostTensor*> rows[] = {{"y", &x.y}, {"residual_out", &x.residual_out}};
  for (const auto& [name, tensor] : own)
    if (const auto whole = written_whole(name, *tensor, all); !whole) return whole;
  for (const auto& [name, tensor] : rows)
    if (const auto whole = written_whole(name, *tensor, all); !x.in_place && !whole) return whole;
  const std::string why = judge::NormReference(x.problem, fresh.operands()).check(x.operands());
  if (why.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << why;
}

}  // namespace falchion::testing
