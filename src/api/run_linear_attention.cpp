// src/api/run_linear_attention.cpp: operands of linear attention -> the kernel that the plan chose.
#include <cstdint>

#include "api/runner.hpp"
#include "api/sizes.hpp"
#include "api/validate.hpp"
#include "plan/linear_attention.hpp"
#include "plan/text.hpp"
#include "ref/linear_attention.hpp"

namespace falchion {
namespace {

// A workspace holds b * s packed tokens. Single sequences may be longer than s, all of them together may not: the plan
// could not hold them, and tokens are never dropped.
constexpr const char* kTooLong = ": s is the longest length allowed";

OperandList operands(const PlanData& plan, const LinearOperands& x) {
  return operands_of(plan.linear().problem, plan.pass, x);
}

Status validate(const PlanData& plan, const LinearOperands& x, const OperandList& list) {
  return validate_operands(plan.linear().problem, x, list);
}

/// Without tokens there is still a final state to write.
bool nothing_to_do(const PlanData& plan, const LinearOperands&) {
  return plan.linear().problem.b == 0 || plan.linear().problem.h_v == 0;
}

/// Kernels count the rows of a sequence in 31 bits; lengths that lie on the device are at most the rows.
Status check_totals(const PlanData& plan, const LinearOperands& x) {
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

GpuChoice choose(const PlanData& plan, const LinearOperands& x) { return gpu_variant(plan, x); }

int launch(const PlanData& plan, const GpuChoice& choice, const LinearOperands& x, void* workspace, Stream stream) {
  const gpu::LinearAttentionKernel& kernel = *choice.variant->kernel_as<gpu::LinearAttentionKernel>();
  return kernel.launch(to_linear_gpu_args(plan, &x, workspace, choice.aligned), stream);
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

constexpr Runner<LinearOperands> runner(const char* operation,
                                        void (*run_on_ref)(const PlanData&, const LinearOperands&, void*)) {
  return {.operation = operation,
          .operands = operands,
          .validate = validate,
          .nothing_to_do = nothing_to_do,
          .check_totals = check_totals,
          .check_lengths = check_lengths,
          .choose = choose,
          .launch = launch,
          .run_on_cpu = run_on_cpu,
          .run_on_ref = run_on_ref};
}

}  // namespace

constinit const Runner<LinearOperands> kRunLinearAttentionForward =
    runner("linear_attention_forward", run_forward_on_ref);
constinit const Runner<LinearOperands> kRunLinearAttentionBackward =
    runner("linear_attention_backward", run_backward_on_ref);

}  // namespace falchion
