// src/api/run_attention_backward.cpp: the entry of attention's backward pass, and how it hands operands and gradients
// to the kernel that the plan chose.
#include <cstdint>

#include "api/sizes.hpp"
#include "api/validate.hpp"
#include "base/size.hpp"
#include "plan/attention.hpp"
#include "plan/attention_backward.hpp"
#include "plan/attention_backward_launch.hpp"
#include "plan/explain.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "ref/attention_backward.hpp"

namespace falchion {
namespace {

/// Even with empty operands there may be gradients to write, which are 0: of k and v without queries, of a bias or
/// slopes that an empty batch shares.
bool nothing_to_do(const PlanData&, const Operands&) { return false; }

/// The workspace holds b * s_q packed rows of queries. Single sequences may be longer than s_q, all of them together
/// may not. The definition has no workspace.
Status check_lengths(const PlanData& plan, const Operands& x) {
  const Attention& a = plan.attention().problem;
  const bool fits = !a.packed || a.b == 0 || x.cu_seqlens_q[a.b] <= a.b * a.s_q;
  if (fits || plan.backend == Backend::ref) return {};
  return {Code::invalid, text("cu_seqlens_q[", a.b, "] = ", x.cu_seqlens_q[a.b], " is over b * s_q = ", a.b * a.s_q,
                              ": s_q is the longest length allowed")};
}

void run_on_ref(const PlanData& plan, const Operands& x, void*) {
  ref::attention_backward(plan.attention().problem, x, {});
}

void run_on_cpu(const PlanData& plan, const Operands& x, void* workspace) {
  // Without queries or keys b * h_k may be any number. The kernel would go through as many items, the definition not.
  if (is_empty(x.q) || is_empty(x.k)) return run_on_ref(plan, x, workspace);
  plan.variant->kernel_as<cpu::AttentionBackwardKernel>()->run(to_backward_args(plan, &x, workspace));
}

/// Packed rows that a kernel can count, and no more queries than the workspace has statistics for.
Status check_totals(const PlanData& plan, const Operands& x, const Choice*) {
  const Attention& a = plan.attention().problem;
  if (!a.packed) return {};
  const auto too_many = [](const char* name, std::int64_t rows) {
    return Status{Code::invalid,
                  text(name, ".shape[1] = ", rows, ": the packed rows are over the limit of ", kMaxSequence)};
  };
  if (x.q.shape[1] > kMaxSequence) return too_many("q", x.q.shape[1]);
  if (x.k.shape[1] > kMaxSequence) return too_many("k", x.k.shape[1]);
  if (x.q.shape[1] <= a.b * a.s_q) return {};
  return {Code::invalid, text("q.shape[1] = ", x.q.shape[1], ": the packed rows are over b * s_q = ", a.b * a.s_q,
                              ": the workspace has no place for more")};
}

int launch(const PlanData& plan, const Choice& taken, const Layout& layout, const Operands& x, void* workspace,
           Stream stream) {
  const gpu::AttentionBackwardFacts& facts = taken.variant->facts_as<gpu::BackwardVariantFacts>();
  return taken.variant->kernel_as<gpu::AttentionBackwardKernel>()->launch(
      to_gpu_backward_args(plan, &x, workspace, facts, layout.met.has(Condition::aligned)), stream);
}

}  // namespace

constinit const OperationOf<Attention> kAttentionBackward = {{.name = "attention_backward",
                                                              .pass = Pass::backward,
                                                              .takes = "Operands",
                                                              .dtype = attention_dtype,
                                                              .resolve = resolve_attention,
                                                              .plan_gpu = plan_attention_backward_gpu,
                                                              .plan_cpu = plan_attention_backward_cpu,
                                                              .ref_workspace = no_workspace,
                                                              .describe = describe_attention,
                                                              .facts = attention_facts,
                                                              .tell_problem = tell_attention_problem,
                                                              .tell_decision = tell_attention_backward},
                                                             {.operands = operands_of,
                                                              .validate = validate_operands,
                                                              .nothing_to_do = nothing_to_do,
                                                              .layout = backward_layout_of,
                                                              .check_totals = check_totals,
                                                              .check_lengths = check_lengths,
                                                              .launch = launch,
                                                              .run_on_cpu = run_on_cpu,
                                                              .run_on_ref = run_on_ref}};

}  // namespace falchion
