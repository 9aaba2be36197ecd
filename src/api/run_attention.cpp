// src/api/run_attention.cpp: the entry of attention's forward pass, and how it hands operands to the kernel that the
// plan chose.
#include <cstdint>

#include "api/sizes.hpp"
#include "api/validate.hpp"
#include "plan/attention.hpp"
#include "plan/attention_launch.hpp"
#include "plan/explain.hpp"
#include "plan/operation.hpp"
#include "plan/text.hpp"
#include "ref/append.hpp"
#include "ref/attention_forward.hpp"

namespace falchion {

namespace {

bool nothing_to_do(const PlanData& plan, const Operands& x) {
  return x.o.shape[0] == 0 || x.o.shape[1] == 0 || x.o.shape[2] == 0 || plan.attention().problem.b == 0;
}

/// Why there are more packed rows than the workspace holds, for a build without the variant that needs no workspace for
/// them.
Status why_too_many_rows(const PlanData& plan, const Operands& x) {
  const Attention& a = plan.attention().problem;
  const bool of_q = x.q.shape[1] > a.b * a.s_q;
  return {Code::unsupported,
          text(of_q ? "q" : "k", ".shape[1] = ", of_q ? x.q.shape[1] : x.k.shape[1], ": more packed rows than b * s_",
               of_q ? "q = " : "k = ", of_q ? a.b * a.s_q : a.b * a.s_k, ", and this build has no general variant for ",
               a.dtype)};
}

/// The workspace holds the rotated q, of as many rows as the plan knows of.
Status check_rotated(const Attention& a, const Operands& x) {
  if (!a.packed || a.rotary_dim == 0 || x.q.shape[1] <= a.b * a.s_q) return {};
  return {Code::invalid, text("q.shape[1] = ", x.q.shape[1], ": with rotary_dim packed rows are at most b * s_q = ",
                              a.b * a.s_q, "; plan with the longest length as s_q")};
}

/// Kernels count the rows of a sequence in 31 bits; lengths that lie on the device are at most the totals.
Status check_totals(const PlanData& plan, const Operands& x, const Choice* taken) {
  const Attention& a = plan.attention().problem;
  if (!a.packed) return {};
  if (Status status = check_rotated(a, x); !status) return status;
  if (x.q.shape[1] * plan.attention().group > kMaxSequence) {
    return {Code::invalid, text("q.shape[1] = ", x.q.shape[1], ": the packed rows of ", plan.attention().group,
                                " heads each are over the limit of ", kMaxSequence)};
  }
  if (x.k.shape[1] > kMaxSequence) {
    return {Code::invalid,
            text("k.shape[1] = ", x.k.shape[1], ": the packed rows are over the limit of ", kMaxSequence)};
  }
  const bool asks_for_room = plan.gpu.choices.front().needs.has(Condition::room);
  return asks_for_room && taken == nullptr ? why_too_many_rows(plan, x) : Status{};
}

/// The workspace holds b * s_k packed keys. Single sequences may be longer than s_k, all of them together may not: the
/// plan could not hold them, and keys are never dropped. (Kernels clamp what else is wrong.)
Status check_lengths(const PlanData& plan, const Operands& x) {
  const Attention& a = plan.attention().problem;
  if (Status status = check_rotated(a, x); !status) return status;
  if (!a.packed || a.cache || a.b == 0 || x.cu_seqlens_k[a.b] <= a.b * a.s_k) return {};
  return {Code::invalid, text("cu_seqlens_k[", a.b, "] = ", x.cu_seqlens_k[a.b], " is over b * s_k = ", a.b * a.s_k,
                              ": s_k is the longest length allowed")};
}

int launch(const PlanData& plan, const Choice& taken, const Layout& layout, const Operands& x, void* workspace,
           Stream stream) {
  gpu::AttentionArgs args = to_gpu_args(plan, x, workspace, *taken.variant, layout.met.has(Condition::aligned));
  const gpu::AttentionKernel& kernel = *taken.variant->kernel_as<gpu::AttentionKernel>();
  const Attention& a = plan.attention().problem;
  if (kernel.append != nullptr && (a.append || a.rotary_dim > 0)) {
    if (const int error = kernel.append(args, stream); error != 0) return error;
    if (a.rotary_dim > 0) args.q = rotated_q(args, args.rotated);
  }
  const int error = kernel.launch(args, stream);
  if (error != 0 || !a.probabilities) return error;
  return kernel.probabilities(args, stream);
}

void run_on_cpu(const PlanData& plan, const Operands& x, void* workspace) {
  plan.variant->kernel_as<cpu::AttentionKernel>()->run(to_args(plan, &x, workspace));
}

void run_on_ref(const PlanData& plan, const Operands& x, void*) {
  ref::append(plan.attention().problem, x);
  ref::attention_forward(plan.attention().problem, x, {});
}

}  // namespace

constinit const OperationOf<Attention> kAttentionForward = {{.name = "attention_forward",
                                                             .pass = Pass::forward,
                                                             .takes = "Operands",
                                                             .dtype = attention_dtype,
                                                             .resolve = resolve_attention,
                                                             .plan_gpu = plan_attention_gpu,
                                                             .plan_cpu = plan_attention_cpu,
                                                             .ref_workspace = no_workspace,
                                                             .describe = describe_attention,
                                                             .facts = attention_facts,
                                                             .tell_problem = tell_attention_problem,
                                                             .tell_decision = tell_attention},
                                                            {.operands = operands_of,
                                                             .validate = validate_operands,
                                                             .nothing_to_do = nothing_to_do,
                                                             .layout = layout_of,
                                                             .check_totals = check_totals,
                                                             .check_lengths = check_lengths,
                                                             .launch = launch,
                                                             .run_on_cpu = run_on_cpu,
                                                             .run_on_ref = run_on_ref}};

}  // namespace falchion
