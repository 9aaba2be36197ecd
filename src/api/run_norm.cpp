// src/api/run_norm.cpp: operands of a norm -> the kernel that the plan chose.
#include "api/runner.hpp"
#include "api/validate.hpp"
#include "plan/norm.hpp"
#include "ref/norm.hpp"

namespace falchion {
namespace {

OperandList operands(const PlanData& plan, const NormOperands& x) { return operands_of(plan.norm().problem, x); }

Status validate(const PlanData& plan, const NormOperands& x, const OperandList& list) {
  return validate_operands(plan.norm().problem, x, list);
}

bool nothing_to_do(const PlanData& plan, const NormOperands&) {
  const Norm& n = plan.norm().problem;
  return n.rows == 0 || (n.d == 0 && !n.mean && !n.rstd);
}

/// Its kernels take any operands.
GpuChoice choose(const PlanData& plan, const NormOperands& x) {
  return {plan.variant, to_gpu_norm_args(plan, x).cut.whole};
}

int launch(const PlanData& plan, const GpuChoice& choice, const NormOperands& x, void*, Stream stream) {
  return choice.variant->kernel_as<gpu::NormKernel>()->launch(to_gpu_norm_args(plan, x), stream);
}

void run_on_cpu(const PlanData& plan, const NormOperands& x, void* workspace) {
  plan.variant->kernel_as<cpu::NormKernel>()->run(to_norm_args(plan, x, workspace));
}

void run_on_ref(const PlanData& plan, const NormOperands& x, void*) { ref::norm(plan.norm().problem, x); }

}  // namespace

constinit const Runner<NormOperands> kRunNorm = {.operation = "norm",
                                                 .operands = operands,
                                                 .validate = validate,
                                                 .nothing_to_do = nothing_to_do,
                                                 .check_totals = has_no_lengths,
                                                 .check_lengths = has_no_lengths,
                                                 .choose = choose,
                                                 .launch = launch,
                                                 .run_on_cpu = run_on_cpu,
                                                 .run_on_ref = run_on_ref};

}  // namespace falchion
