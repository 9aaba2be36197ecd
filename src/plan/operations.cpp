// src/plan/operations.cpp: the table of operations.
#include "plan/operation.hpp"

#include <algorithm>

#include "plan/attention.hpp"
#include "plan/attention_backward.hpp"
#include "plan/explain.hpp"
#include "plan/gemm.hpp"
#include "plan/linear_attention.hpp"
#include "plan/norm.hpp"
#include "plan/paths.hpp"
#include "plan/text.hpp"

namespace falchion {
namespace {

constexpr Operation kAttentionForward{.name = "attention_forward",
                                      .pass = Pass::forward,
                                      .operands = "Operands",
                                      .dtype = attention_dtype,
                                      .resolve = resolve_attention,
                                      .plan_gpu = plan_attention_gpu,
                                      .plan_cpu = plan_attention_cpu,
                                      .ref_workspace = [](const PlanData&) { return std::size_t{0}; },
                                      .describe = describe_attention,
                                      .facts = attention_facts,
                                      .tell_problem = tell_attention_problem,
                                      .tell_decision = tell_attention};

constexpr Operation kAttentionBackward{.name = "attention_backward",
                                       .pass = Pass::backward,
                                       .operands = "Operands",
                                       .dtype = attention_dtype,
                                       .resolve = resolve_attention,
                                       .plan_gpu = plan_attention_backward_gpu,
                                       .plan_cpu = plan_attention_backward_cpu,
                                       .ref_workspace = [](const PlanData&) { return std::size_t{0}; },
                                       .describe = describe_attention,
                                       .facts = attention_facts,
                                       .tell_problem = tell_attention_problem,
                                       .tell_decision = tell_attention_backward};

/// Both passes of linear attention are planned and told of by the same functions, which ask the plan for its pass.
constexpr Operation linear_attention(const char* name, Pass pass) {
  return {.name = name,
          .pass = pass,
          .operands = "LinearOperands",
          .dtype = linear_dtype,
          .resolve = resolve_linear,
          .plan_gpu = plan_linear_attention_gpu,
          .plan_cpu = plan_linear_attention_cpu,
          .ref_workspace = linear_ref_workspace,
          .describe = describe_linear,
          .facts = linear_facts_of,
          .tell_problem = tell_linear_problem,
          .tell_decision = tell_linear};
}

constexpr Operation kGemm{.name = "gemm",
                          .pass = Pass::forward,
                          .operands = "GemmOperands",
                          .dtype = gemm_dtype,
                          .resolve = resolve_gemm,
                          .plan_gpu = plan_gemm_gpu,
                          .plan_cpu = plan_gemm_cpu,
                          .ref_workspace = [](const PlanData&) { return std::size_t{0}; },
                          .describe = describe_gemm,
                          .facts = gemm_facts,
                          .tell_problem = tell_gemm_problem,
                          .tell_decision = tell_gemm};

constexpr Operation kNorm{.name = "norm",
                          .pass = Pass::forward,
                          .operands = "NormOperands",
                          .dtype = norm_dtype,
                          .resolve = resolve_norm,
                          .plan_gpu = plan_norm_gpu,
                          .plan_cpu = plan_norm_cpu,
                          .ref_workspace = [](const PlanData&) { return std::size_t{0}; },
                          .describe = describe_norm,
                          .facts = norm_facts,
                          .tell_problem = tell_norm_problem,
                          .tell_decision = tell_norm};

constexpr Operation kOperations[] = {kAttentionForward,
                                     kAttentionBackward,
                                     linear_attention("linear_attention_forward", Pass::forward),
                                     linear_attention("linear_attention_backward", Pass::backward),
                                     kGemm,
                                     kNorm};

const Operation& named(const char* name) {
  const Operation* found = kOperations;
  for (const Operation& operation : kOperations) {
    if (same(operation.name, name)) found = &operation;
  }
  return *found;
}

template <class Decided, class Problem>
void ask_for(const Problem& problem, Pass pass, const Target& target, PlanData* plan) {
  *plan = PlanData{};
  plan->operation = &operation_of(problem, pass);
  plan->decided.emplace<Decided>().problem = problem;
  plan->pass = pass;
  plan->target = target;
}

}  // namespace

std::span<const Operation> operations() { return kOperations; }

const Operation& operation_of(const Attention&, Pass pass) {
  return named(pass == Pass::backward ? "attention_backward" : "attention_forward");
}
const Operation& operation_of(const LinearAttention&, Pass pass) {
  return named(pass == Pass::backward ? "linear_attention_backward" : "linear_attention_forward");
}
const Operation& operation_of(const Gemm&, Pass) { return named("gemm"); }
const Operation& operation_of(const Norm&, Pass) { return named("norm"); }

bool is_listed_for(Backend backend, const Operation& operation) {
  const auto all = listed_variants();
  return std::any_of(all.begin(), all.end(),
                     [&](const Variant& v) { return v.backend == backend && v.is(operation.name); });
}

void ask(const Attention& problem, Pass pass, const Target& target, PlanData* plan) {
  ask_for<AttentionPlan>(problem, pass, target, plan);
}
void ask(const LinearAttention& problem, Pass pass, const Target& target, PlanData* plan) {
  ask_for<LinearPlan>(problem, pass, target, plan);
}
void ask(const Gemm& problem, Pass pass, const Target& target, PlanData* plan) {
  ask_for<GemmPlan>(problem, pass, target, plan);
}
void ask(const Norm& problem, Pass pass, const Target& target, PlanData* plan) {
  ask_for<NormPlan>(problem, pass, target, plan);
}

Status decide(PlanData* plan) {
  plan->operation->resolve(plan);
  Status status = choose_path(plan);
  if (status && plan->backend == Backend::ref) plan->workspace = plan->operation->ref_workspace(*plan);
  return status;
}

}  // namespace falchion
