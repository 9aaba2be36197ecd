// src/api/run_norm.cpp: the entry of norms, and how it hands operands to the kernel that the plan chose.
#include "api/validate.hpp"
#include "plan/explain.hpp"
#include "plan/norm.hpp"
#include "plan/operation.hpp"
#include "ref/norm.hpp"

namespace falchion {
namespace {

bool nothing_to_do(const PlanData& plan, const NormOperands&) {
  const Norm& n = plan.norm().problem;
  return n.rows == 0 || (n.d == 0 && !n.mean && !n.rstd);
}

int launch(const PlanData& plan, const Choice& taken, const Layout&, const NormOperands& x, void*, Stream stream) {
  const gpu::NormArgs args = to_gpu_norm_args(plan, x, taken.cut_as<gpu::NormCut>());
  return taken.variant->kernel_as<gpu::NormKernel>()->launch(args, stream);
}

void run_on_cpu(const PlanData& plan, const NormOperands& x, void* workspace) {
  plan.variant->kernel_as<cpu::NormKernel>()->run(to_norm_args(plan, x, workspace));
}

void run_on_ref(const PlanData& plan, const NormOperands& x, void*) { ref::norm(plan.norm().problem, x); }

}  // namespace

constinit const OperationOf<Norm> kNorm = {{.name = "norm",
                                            .pass = Pass::forward,
                                            .takes = "NormOperands",
                                            .dtype = norm_dtype,
                                            .resolve = resolve_norm,
                                            .plan_gpu = plan_norm_gpu,
                                            .plan_cpu = plan_norm_cpu,
                                            .ref_workspace = no_workspace,
                                            .describe = describe_norm,
                                            .facts = norm_facts,
                                            .tell_problem = tell_norm_problem,
                                            .tell_decision = tell_norm},
                                           {.operands = operands_of,
                                            .validate = validate_operands,
                                            .nothing_to_do = nothing_to_do,
                                            .layout = layout_of,
                                            .check_totals = has_no_totals<Norm>,
                                            .check_lengths = has_no_lengths<Norm>,
                                            .launch = launch,
                                            .run_on_cpu = run_on_cpu,
                                            .run_on_ref = run_on_ref}};

}  // namespace falchion
