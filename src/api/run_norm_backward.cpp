// src/api/run_norm_backward.cpp: the entry of a norm's backward pass, and how it hands operands to the kernel that the
// plan chose.
#include "api/validate.hpp"
#include "plan/explain.hpp"
#include "plan/norm.hpp"
#include "plan/norm_backward.hpp"
#include "plan/operation.hpp"
#include "ref/norm_backward.hpp"

namespace falchion {
namespace {

/// Without rows grad_weight and grad_bias are 0.
bool nothing_to_do(const PlanData& plan, const NormOperands& x) {
  const Norm& n = plan.norm().problem;
  return (!ref::wants_grad_x(n) || is_empty(x.grad_x)) && (!ref::wants_grad_weight(n) || is_empty(x.grad_weight)) &&
         (!n.bias || is_empty(x.grad_bias));
}

int launch(const PlanData& plan, const Choice& taken, const Layout&, const NormOperands& x, void* workspace,
           Stream stream) {
  const NormSweeps sweeps = sweeps_of(plan, x);
  for (std::size_t i = 0; i < sweeps.count; ++i) {
    const auto args = to_gpu_norm_backward_args(plan, sweeps.call[i], taken.cut_as<gpu::NormBackwardCut>(), workspace);
    const int error = taken.variant->kernel_as<gpu::NormBackwardKernel>()->launch(args, stream);
    if (error != 0) return error;
  }
  return 0;
}

void run_on_cpu(const PlanData& plan, const NormOperands& x, void* workspace) {
  const NormSweeps sweeps = sweeps_of(plan, x);
  for (std::size_t i = 0; i < sweeps.count; ++i)
    plan.variant->kernel_as<cpu::NormBackwardKernel>()->run(to_norm_backward_args(plan, sweeps.call[i], workspace));
}

void run_on_ref(const PlanData& plan, const NormOperands& x, void* workspace) {
  ref::norm_backward(plan.norm().problem, x, workspace);
}

}  // namespace

constinit const OperationOf<Norm> kNormBackward = {{.name = "norm_backward",
                                                    .pass = Pass::backward,
                                                    .takes = "NormOperands",
                                                    .dtype = norm_dtype,
                                                    .resolve = resolve_norm,
                                                    .plan_gpu = plan_norm_backward_gpu,
                                                    .plan_cpu = plan_norm_backward_cpu,
                                                    .ref_workspace = norm_backward_ref_workspace,
                                                    .describe = describe_norm_backward,
                                                    .facts = norm_facts,
                                                    .tell_problem = tell_norm_backward_problem,
                                                    .tell_decision = tell_norm_backward},
                                                   {.operands = operands_of,
                                                    .validate = validate_operands,
                                                    .nothing_to_do = nothing_to_do,
                                                    .layout = gradient_layout_of,
                                                    .check_totals = has_no_totals<Norm>,
                                                    .check_lengths = has_no_lengths<Norm>,
                                                    .launch = launch,
                                                    .run_on_cpu = run_on_cpu,
                                                    .run_on_ref = run_on_ref}};

}  // namespace falchion
