// src/api/run_linear_attention.cpp: the entries of linear attention, and how they hand operands to the kernel that the
// plan chose.
#include <cstdint>

#include "api/sizes.hpp"
#include "api/validate.hpp"
#include "plan/explain.hpp"
#include "plan/linear_attention.hpp"
#include "plan/operation.hpp"
#include "plan/text.hpp"
#include "ref/linear_attention.hpp"

namespace falchion {
namespace {

// A workspace holds b * s packed tokens. Single sequences may be longer than s, all of them together may not: the plan
// could not hold them, and tokens are never dropped.
constexpr const char* kTooLong = ": s is the longest length allowed";

/// Without tokens there is still a final state to write.
bool nothing_to_do(const PlanData& plan, const LinearOperands&) {
  return plan.linear().problem.b == 0 || plan.linear().problem.h_v == 0;
}

/// Kernels count the rows of a sequence in 31 bits; lengths that lie on the device are at most the rows.
Status check_totals(const PlanData& plan, const LinearOperands& x, const Choice*) {
  const LinearAttention& a = plan.linear().problem;
  if (!a.packed) return {};
  if (x.q.shape[1] > kMaxSequence) {
    return {Code::invalid,
            text("q.shape[1] = ", x.q.shape[1], ": the packed rows are over the limit of ", kMaxSequence)};
  }
  if (plan.workspace == 0 || x.q.shape[1] <= a.b * a.s) return {};
  return {Code::invalid, text("q.shape[1] = ", x.q.shape[1], " is over b * s = ", a.b * a.s, kTooLong)};
}

Status check_lengths(const PlanData& plan, const LinearOperands& x) {
  const LinearAttention& a = plan.linear().problem;
  if (!a.packed || x.cu_seqlens[a.b] <= a.b * a.s) return {};
  return {Code::invalid, text("cu_seqlens[", a.b, "] = ", x.cu_seqlens[a.b], " is over b * s = ", a.b * a.s, kTooLong)};
}

int launch(const PlanData& plan, const Choice& taken, const Layout& layout, const LinearOperands& x, void* workspace,
           Stream stream) {
  const gpu::LinearAttentionKernel& kernel = *taken.variant->kernel_as<gpu::LinearAttentionKernel>();
  return kernel.launch(to_linear_gpu_args(plan, &x, workspace, layout.met.has(Condition::aligned)), stream);
}

void run_on_cpu(const PlanData& plan, const LinearOperands& x, void* workspace) {
  plan.variant->kernel_as<cpu::LinearAttentionKernel>()->run(to_linear_args(plan, &x, workspace));
}

void run_forward_on_ref(const PlanData& plan, const LinearOperands& x, void* workspace) {
  ref::linear_attention_forward(plan.linear().problem, x, workspace);
}

void run_backward_on_ref(const PlanData& plan, const LinearOperands& x, void* workspace) {
  ref::linear_attention_backward(plan.linear().problem, x, workspace);
}

/// Both passes are planned, explained and run by the same functions, which read the pass from the plan.
constexpr OperationOf<LinearAttention> entry(const char* name, Pass pass,
                                             decltype(OperationOf<LinearAttention>::run_on_ref) run_on_ref) {
  return {{.name = name,
           .pass = pass,
           .takes = "LinearOperands",
           .dtype = linear_dtype,
           .resolve = resolve_linear,
           .plan_gpu = plan_linear_attention_gpu,
           .plan_cpu = plan_linear_attention_cpu,
           .ref_workspace = linear_ref_workspace,
           .describe = describe_linear,
           .facts = linear_facts_of,
           .tell_problem = tell_linear_problem,
           .tell_decision = tell_linear},
          {.operands = operands_of,
           .validate = validate_operands,
           .nothing_to_do = nothing_to_do,
           .layout = layout_of,
           .check_totals = check_totals,
           .check_lengths = check_lengths,
           .launch = launch,
           .run_on_cpu = run_on_cpu,
           .run_on_ref = run_on_ref}};
}

}  // namespace

constinit const OperationOf<LinearAttention> kLinearAttentionForward =
    entry("linear_attention_forward", Pass::forward, run_forward_on_ref);
constinit const OperationOf<LinearAttention> kLinearAttentionBackward =
    entry("linear_attention_backward", Pass::backward, run_backward_on_ref);

}  // namespace falchion
