// src/plan/explain_linear.cpp: a plan of linear attention, in words.
#include "plan/explain.hpp"
#include "plan/linear_attention.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"

namespace falchion {
namespace {

std::string bytes(std::size_t count) { return bytes_text(static_cast<double>(count)); }

const char* decay_text(Decay decay) {
  return decay == Decay::none ? "none" : decay == Decay::head ? "a constant a head" : "one number a token and head";
}

}  // namespace

std::string describe_linear(const PlanData& plan) {
  const LinearAttention& a = plan.linear->problem;
  std::string out =
      text(linear_attention_name(plan.pass), " ", level_text(plan), " ", name(a.dtype), " d", a.d_qk, " dv", a.d_v,
           a.decay == Decay::none   ? ""
           : a.decay == Decay::head ? " decay head"
                                    : " decay token",
           a.normalise ? " normalised" : "", a.reverse ? " reverse" : "");
  if (plan.variant != nullptr) {
    out += text(" chunk ", linear_chunk(plan), " segments ", plan.linear->segments, "x", plan.linear->segment);
    if (plan.backend == Backend::cpu) out += text(" threads ", plan.threads);
    if (plan.linear->wide > 0) out += text(" wide ", plan.linear->wide);
  }
  return text(out, " ws ", bytes(plan.workspace));
}

void explain_linear_problem(const PlanData& plan, std::string* out) {
  const LinearAttention& a = plan.linear->problem;
  line(out, "problem",
       text(linear_attention_name(plan.pass), " ", name(a.dtype), ": b ", a.b, ", s ", a.s, ", h_qk ", a.h_qk, ", h_v ",
            a.h_v, ", d_qk ", a.d_qk, ", d_v ", a.d_v, a.reverse ? ", from the last token to the first" : ""));
  line(out, "terms",
       text("scale ", a.scale, ", feature map ", a.feature_map == FeatureMap::identity ? "identity" : "elu + 1",
            ", decay: ", decay_text(a.decay), a.normalise ? text(", normalised, eps ", a.eps) : ""));
  std::string with = a.packed ? "packed lengths" : "";
  if (a.initial_state) with += text(with.empty() ? "" : ", ", "initial state");
  if (a.final_state) with += text(with.empty() ? "" : ", ", "final state");
  if (!with.empty()) line(out, "with", with);
  const double flops = linear_attention_flops(a, plan.pass, linear_chunk(plan)),
               moved = linear_attention_bytes(a, plan.pass);
  line(out, "work",
       text(scaled_text(flops, "flop"), " in chunks of ", linear_chunk(plan), "; ", bytes_text(moved),
            " if each tensor moves once: ", scaled_text(moved > 0 ? flops / moved : 0, "flop/B")));
}

void explain_linear(const PlanData& plan, std::string* out) {
  const LinearPlan& linear = *plan.linear;
  const LinearAttention& a = linear.problem;
  if (plan.variant != nullptr && plan.backend != Backend::cpu) {
    line(out, "device", text(plan.gpu.device, ": ", plan.gpu.sms, " SMs"));
  }
  if (plan.variant != nullptr && plan.items == 0) return line(out, "chunks", "none: the problem is empty");
  if (plan.variant == nullptr) return line(out, "workspace", bytes(plan.workspace));
  line(out, "chunks",
       text(linear_chunk(plan), " tokens; the state of a head, ", a.d_qk, " x ", a.d_v + (a.normalise ? 1 : 0),
            " f32, goes along"));
  line(out, "segments",
       linear.segments > 1
           ? text(linear.segments, " of ", linear.segment, " tokens: ", plan.items,
                  plan.backend == Backend::cpu ? " heads would leave threads idle" : " heads would leave SMs idle",
                  ", so each segment's state is computed first",
                  linear.parts > 1 ? text(" in ", linear.parts, " parts") : "", " and added up")
       : a.packed ? "1: packed sequences stay whole"
                  : text("1: ", plan.items, " heads ", plan.target.segments > 0 ? "as asked for" : "are enough"));
  if (plan.backend == Backend::cpu) {
    line(out, "threads",
         text(plan.threads, plan.target.executor.parallel_for != nullptr ? " of the caller's pool" : ""));
    line(out, "workspace",
         text(bytes(plan.workspace), ": states ", bytes(linear.memory.states), ", scratch ", plan.threads, " x ",
              bytes(linear.memory.scratch)));
    return;
  }
  const gpu::LinearAttentionFacts& row = plan.variant->linear;
  const std::int64_t ctas = linear.ctas * linear.segments, slots = std::int64_t{plan.gpu.sms} * row.ctas;
  const auto grid = [&](std::int64_t of) {
    const std::int64_t waves = (of + slots - 1) / slots;
    return text(of, " CTAs, ", row.ctas, " an SM: ", waves, waves == 1 ? " wave" : " waves");
  };
  const std::int64_t wide = plan.items * linear.wide;
  if (wide > 0) line(out, "wide", text(grid(wide), ", each with all ", a.d_v, " columns of a head"));
  if (wide < ctas || ctas == 0) {
    line(out, "grid", grid(ctas - wide));
    line(out, "shared", text(bytes_text(row.shared_bytes), " a CTA, ", row.threads, " threads"));
  }
  line(out, "workspace", bytes(plan.workspace));
  if (plan.gpu.unaligned == plan.variant) return;
  line(out, "unaligned",
       plan.gpu.unaligned == nullptr ? "refused: this build has no general row"
                                     : text("operands that are not 16-byte aligned run on the row ",
                                            plan.gpu.unaligned->level, " d", plan.gpu.unaligned->d));
}

}  // namespace falchion
