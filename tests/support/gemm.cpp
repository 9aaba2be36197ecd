// tests/support/gemm.cpp: implements gemm.hpp.
#include "support/gemm.hpp"
#include "api/data_of.hpp"

#include "judge/gemm.hpp"
#include "plan/gemm.hpp"
#include "problem/device_copy.hpp"
#include "support/compare.hpp"

namespace falchion::testing {

const std::vector<GemmCase>& gemm_cases() {
  using enum Activation;
  using enum Layout;
  static const std::vector<GemmCase> all = {
#define CASE(name, batch, m, n, k, ...) GemmCase{#name, batch, m, n, k} __VA_ARGS__,
#include "gemm_cases.def"
  };
  return all;
}

GemmOperands GemmInstance::operands() const {
  GemmOperands x;
  x.a = a.view();
  x.b = b.view();
  x.c = c.view();
  x.d = d.view();
  x.residual = residual.view();
  x.bias_n = bias_n.view();
  x.bias_m = bias_m.view();
  x.scale_a = scale_a.view();
  x.scale_b = scale_b.view();
  return x;
}

GemmInstance make_gemm_instance(const GemmCase& row, DType dtype, std::uint64_t seed) {
  GemmInstance x;
  Gemm& g = x.problem = row.terms;
  g.dtype = dtype;
  if (is_8bit(dtype) && g.dtype_d == DType::as_q) g.dtype_d = DType::bf16;
  g.batch = row.batch;
  g.m = row.m;
  g.n = row.n;
  g.k = row.k;
  x.in_place = row.in_place_;
  const auto input = [&](DType type, const Shape& shape, Layout layout, HostTensor* tensor) {
    *tensor = HostTensor(type, shape, layout);
    tensor->fill_poison();
    tensor->fill_normal(seed++);
  };
  const Layout of_output = row.layout_ == Layout::reversed ? Layout::dense : row.layout_;
  const std::int64_t shared = row.shared_b_ ? 1 : g.batch;
  const Shape d{g.batch, g.m, row.n2_, g.n / row.n2_};
  input(dtype, {g.batch, g.m, row.k2_, g.k / row.k2_}, row.layout_, &x.a);
  input(dtype, {shared, rows_of_b(g), row.k2_, g.k / row.k2_}, row.layout_b_, &x.b);
  if (g.beta != 0) input(dtype_of_c(g), d, of_output, &x.c);
  if (g.residual) input(dtype_of_d(g), d, of_output, &x.residual);
  const DType of_bias = row.biases_f32_ ? DType::f32 : is_8bit(dtype) ? dtype_of_d(g) : dtype;
  if (g.bias_n) input(of_bias, {1, 1, 1, rows_of_b(g)}, Layout::dense, &x.bias_n);
  if (g.bias_m) input(of_bias, {shared, g.m, 1, 1}, Layout::dense, &x.bias_m);
  if (g.scaling != Scaling::none) {
    const ScaleCount of_a = scales_of_a(g), of_b = scales_of_b(g);
    input(DType::f32, {g.batch, of_a.rows, of_a.along_k, 1}, row.layout_, &x.scale_a);
    input(DType::f32, {shared, of_b.rows, of_b.along_k, 1}, row.layout_b_, &x.scale_b);
  }
  x.d = !x.in_place ? HostTensor(dtype_of_d(g), d, of_output) : g.beta != 0 ? x.c : x.residual;
  if (!x.in_place) x.d.fill_poison();
  return x;
}

Status run(const Target& target, const GemmInstance& x) {
  Plan plan;
  if (Status status = Plan::make(x.problem, target, &plan); !status) return status;
  return run(plan, x);
}

Status run(const Plan& plan, const GemmInstance& x) {
  if (Path{data_of(plan)->backend, ""}.on_gpu()) {
    std::vector<cuda::Bytes> whole;
    for (const HostTensor* tensor : {&x.a, &x.b, &x.c, &x.d, &x.residual, &x.bias_n, &x.bias_m, &x.scale_a, &x.scale_b})
      if (tensor->memory_bytes() > 0) whole.push_back({tensor->memory(), tensor->memory_bytes()});
    return cuda::run_on_device(plan, x.problem, x.operands(), whole);
  }
  const Workspace workspace(plan.workspace_bytes());
  return plan.run(x.operands(), workspace.data(), workspace.size());
}

std::string why_refused(const GemmInstance& x, const std::function<void(GemmOperands*)>& change) {
  Plan plan;
  if (Status status = Plan::make(x.problem, host_target(), &plan); !status) return status.why;
  const Workspace workspace(plan.workspace_bytes());
  GemmOperands operands = x.operands();
  change(&operands);
  return plan.run(operands, workspace.data(), workspace.size()).why;
}

judge::Sums sums_on(const Path& path) {
  return path.on_gpu() && path.backend != Backend::sm80 ? judge::Sums::promoted : judge::Sums::f32;
}

::testing::AssertionResult matches(const GemmInstance& x, const judge::GemmReference& reference, judge::Sums sums) {
  if (!x.in_place) {
    const auto whole = written_whole("d", x.d, [](auto...) { return true; });
    if (!whole) return whole;
  }
  const judge::ErrorReport report = reference.check(x.d.view(), sums);
  if (report.passed()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << report.why;
}

::testing::AssertionResult matches(const GemmInstance& x, const GemmInstance& fresh, judge::Sums sums) {
  return matches(x, judge::GemmReference(x.problem, fresh.operands()), sums);
}

}  // namespace falchion::testing
