// src/api/run_quantise.cpp: the entry of Quantise, and how it hands operands to the kernel that the plan chose.
#include "api/validate.hpp"
#include "plan/explain.hpp"
#include "plan/operation.hpp"
#include "plan/quantise.hpp"
#include "ref/quantise.hpp"

namespace falchion {
namespace {

/// Without tokens the mean is still written.
bool nothing_to_do(const PlanData& plan, const QuantiseOperands&) {
  const Quantise& q = plan.quantise().problem;
  return q.b == 0 || q.h == 0 || (q.s == 0 && (!q.smooth || q.mean_given));
}

int launch(const PlanData& plan, const Choice& taken, const Layout&, const QuantiseOperands& x, void* workspace,
           Stream stream) {
  const gpu::QuantiseArgs args = to_gpu_quantise_args(plan, x, taken.cut_as<gpu::QuantiseCut>(), workspace);
  return taken.variant->kernel_as<gpu::QuantiseKernel>()->launch(args, stream);
}

void run_on_ref(const PlanData& plan, const QuantiseOperands& x, void*) { ref::quantise(plan.quantise().problem, x); }

}  // namespace

constinit const OperationOf<Quantise> kQuantise = {{.name = "quantise",
                                                    .pass = Pass::forward,
                                                    .takes = "QuantiseOperands",
                                                    .dtype = quantise_dtype,
                                                    .resolve = resolve_quantise,
                                                    .plan_gpu = plan_quantise_gpu,
                                                    .plan_cpu = nullptr,
                                                    .ref_workspace = no_workspace,
                                                    .describe = describe_quantise,
                                                    .facts = quantise_facts,
                                                    .tell_problem = tell_quantise_problem,
                                                    .tell_decision = tell_quantise},
                                                   {.operands = operands_of,
                                                    .validate = validate_operands,
                                                    .nothing_to_do = nothing_to_do,
                                                    .layout = layout_of,
                                                    .check_totals = has_no_totals<Quantise>,
                                                    .check_lengths = has_no_lengths<Quantise>,
                                                    .launch = launch,
                                                    .run_on_cpu = nullptr,
                                                    .run_on_ref = run_on_ref}};

}  // namespace falchion
