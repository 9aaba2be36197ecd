// src/api/run_gemm.cpp: the entry of GEMMs, and how it hands operands to the kernel that the plan chose.
#include "api/validate.hpp"
#include "plan/explain.hpp"
#include "plan/gemm.hpp"
#include "plan/gemm_gpu.hpp"
#include "plan/operation.hpp"
#include "ref/gemm.hpp"

namespace falchion {
namespace {

bool nothing_to_do(const PlanData& plan, const GemmOperands&) {
  const Gemm& g = plan.gemm().problem;
  return g.batch == 0 || g.m == 0 || g.n == 0;
}

int launch(const PlanData& plan, const Choice& taken, const GemmLayout& layout, const GemmOperands&, void* workspace,
           Stream stream) {
  return taken.variant->kernel_as<gpu::GemmKernel>()->launch(to_gpu_gemm_args(plan, taken, layout, workspace), stream);
}

void run_on_cpu(const PlanData& plan, const GemmOperands& x, void* workspace) {
  plan.variant->kernel_as<cpu::GemmKernel>()->run(to_gemm_args(plan, x, workspace));
}

void run_on_ref(const PlanData& plan, const GemmOperands& x, void*) { ref::gemm(plan.gemm().problem, x); }

}  // namespace

constinit const OperationOf<Gemm> kGemm = {{.name = "gemm",
                                            .pass = Pass::forward,
                                            .takes = "GemmOperands",
                                            .dtype = gemm_dtype,
                                            .resolve = resolve_gemm,
                                            .plan_gpu = plan_gemm_gpu,
                                            .plan_cpu = plan_gemm_cpu,
                                            .ref_workspace = no_workspace,
                                            .describe = describe_gemm,
                                            .facts = gemm_facts,
                                            .tell_problem = tell_gemm_problem,
                                            .tell_decision = tell_gemm},
                                           {.operands = operands_of,
                                            .validate = validate_operands,
                                            .nothing_to_do = nothing_to_do,
                                            .layout = layout_of,
                                            .check_totals = has_no_totals<Gemm>,
                                            .check_lengths = has_no_lengths<Gemm>,
                                            .launch = launch,
                                            .run_on_cpu = run_on_cpu,
                                            .run_on_ref = run_on_ref}};

}  // namespace falchion
