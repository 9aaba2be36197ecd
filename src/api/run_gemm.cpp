// src/api/run_gemm.cpp: operands of a GEMM -> the kernel that the plan chose.
#include "api/runner.hpp"
#include "api/validate.hpp"
#include "plan/gemm.hpp"
#include "plan/gemm_gpu.hpp"
#include "ref/gemm.hpp"

namespace falchion {
namespace {

OperandList operands(const PlanData& plan, const GemmOperands& x) { return operands_of(plan.gemm().problem, x); }

Status validate(const PlanData& plan, const GemmOperands& x, const OperandList& list) {
  return validate_operands(plan.gemm().problem, x, list);
}

bool nothing_to_do(const PlanData& plan, const GemmOperands&) {
  const Gemm& g = plan.gemm().problem;
  return g.batch == 0 || g.m == 0 || g.n == 0;
}

GpuChoice choose(const PlanData& plan, const GemmOperands& x) { return gpu_variant(plan, x); }

int launch(const PlanData& plan, const GpuChoice& choice, const GemmOperands& x, void* workspace, Stream stream) {
  return choice.variant->kernel_as<gpu::GemmKernel>()->launch(to_gpu_gemm_args(plan, *choice.variant, x, workspace),
                                                              stream);
}

void run_on_cpu(const PlanData& plan, const GemmOperands& x, void* workspace) {
  plan.variant->kernel_as<cpu::GemmKernel>()->run(to_gemm_args(plan, x, workspace));
}

void run_on_ref(const PlanData& plan, const GemmOperands& x, void*) { ref::gemm(plan.gemm().problem, x); }

}  // namespace

constinit const Runner<GemmOperands> kRunGemm = {.operation = "gemm",
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
