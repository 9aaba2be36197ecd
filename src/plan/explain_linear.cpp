// src/plan/explain_linear.cpp: a plan of linear attention, in words and facts.
#include "base/divide.hpp"
#include "plan/explain.hpp"
#include "plan/linear_attention.hpp"
#include "plan/operation.hpp"
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
  const LinearAttention& a = plan.linear().problem;
  std::string out = text(plan.operation->name, " ", level_text(plan), " ", name(a.dtype), " d", a.d_qk, " dv", a.d_v,
                         a.decay == Decay::none   ? ""
                         : a.decay == Decay::head ? " decay head"
                                                  : " decay token",
                         a.normalise ? " normalised" : "", a.reverse ? " reverse" : "");
  if (plan.variant != nullptr) {
    out += text(" chunk ", linear_chunk(plan), " segments ", plan.linear().segments, "x", plan.linear().segment);
    if (plan.backend == Backend::cpu) out += text(" threads ", plan.threads);
    if (plan.linear().wide > 0) out += text(" wide ", plan.linear().wide);
  }
  return text(out, " ws ", bytes(plan.workspace));
}

Json linear_facts_of(const PlanData& plan) { return problem_facts(plan.linear().problem); }

Json problem_facts(const LinearAttention& a) {
  return Json::object({{"dtype", name(a.dtype)},
                       {"dtype_k", name(a.dtype_k)},
                       {"dtype_v", name(a.dtype_v)},
                       {"dtype_o", name(a.dtype_o)},
                       {"b", a.b},
                       {"s", a.s},
                       {"h_qk", a.h_qk},
                       {"h_v", a.h_v},
                       {"d_qk", a.d_qk},
                       {"d_v", a.d_v},
                       {"scale", a.scale},
                       {"feature_map", name(a.feature_map)},
                       {"decay", name(a.decay)},
                       {"normalise", a.normalise},
                       {"eps", a.eps},
                       {"reverse", a.reverse},
                       {"packed", a.packed},
                       {"initial_state", a.initial_state},
                       {"final_state", a.final_state}});
}

void tell_linear_problem(const PlanData& plan, Story* story) {
  const LinearAttention& a = plan.linear().problem;
  story->tell("problem",
              text(plan.operation->name, " ", name(a.dtype), ": b ", a.b, ", s ", a.s, ", h_qk ", a.h_qk, ", h_v ",
                   a.h_v, ", d_qk ", a.d_qk, ", d_v ", a.d_v, a.reverse ? ", from the last token to the first" : ""));
  story->tell("terms",
              text("scale ", a.scale, ", feature map ", a.feature_map == FeatureMap::identity ? "identity" : "elu + 1",
                   ", decay: ", decay_text(a.decay), a.normalise ? text(", normalised, eps ", a.eps) : ""));
  std::string with = a.packed ? "packed lengths" : "";
  if (a.initial_state) with += text(with.empty() ? "" : ", ", "initial state");
  if (a.final_state) with += text(with.empty() ? "" : ", ", "final state");
  if (!with.empty()) story->tell("with", with);

  const int chunk = linear_chunk(plan);
  const double flops = linear_attention_flops(a, plan.pass, chunk), moved = linear_attention_bytes(a, plan.pass);
  const double intensity = moved > 0 ? flops / moved : 0;
  story->tell(
      "work",
      text(scaled_text(flops, "flop"), " in chunks of ", chunk, "; ", bytes_text(moved),
           " if each tensor moves once: ", scaled_text(intensity, "flop/B")),
      {{"work", Json::object({{"flops", flops}, {"bytes", moved}, {"flops_per_byte", intensity}, {"chunk", chunk}})}});
}

namespace {

void tell_segments(const PlanData& plan, Story* story) {
  const LinearPlan& linear = plan.linear();
  const char* idle = plan.backend == Backend::cpu ? " would leave threads idle" : " would leave SMs idle";
  const std::string heads = count_text(plan.items, "head");
  const std::string why_one = linear.problem.packed ? "packed sequences stay whole"
                                                    : text(heads, plan.target.segments > 0 ? " as asked for"
                                                                  : plan.items == 1        ? " is enough"
                                                                                           : " are enough");
  story->tell(
      "segments",
      linear.segments == 1 ? text("1: ", why_one)
                           : text(linear.segments, " of ", linear.segment, " tokens: ", heads, idle,
                                  ", so each segment's state is computed first",
                                  linear.parts > 1 ? text(" in ", linear.parts, " parts") : "", " and added up"),
      {{"segments", Json::object({{"count", linear.segments}, {"tokens", linear.segment}, {"parts", linear.parts}})}});
}

void tell_cpu(const PlanData& plan, Story* story) {
  const cpu::LinearMemory& memory = plan.linear().memory;
  const bool callers_pool = plan.target.executor.parallel_for != nullptr;
  story->note({{"tile", Json::object({{"chunk", linear_chunk(plan)}})}});
  story->tell("threads", text(plan.threads, callers_pool ? " of the caller's pool" : ""),
              {{"threads", Json::object({{"count", plan.threads}, {"callers_pool", callers_pool}})}});
  story->tell("workspace",
              text(bytes(plan.workspace), ": states ", bytes(memory.states), ", scratch ", plan.threads, " x ",
                   bytes(memory.scratch)),
              {{"memory", Json::object({{"states", memory.states}, {"scratch_a_thread", memory.scratch}})}});
}

/// The CTAs that have all columns of a head, and those that have some.
void tell_grids(const PlanData& plan, Story* story) {
  const LinearPlan& linear = plan.linear();
  const gpu::LinearAttentionFacts& facts = plan.variant->facts_as<gpu::LinearVariantFacts>();
  const std::int64_t ctas = linear.ctas * linear.segments, wide = plan.items * linear.wide;
  const std::int64_t slots = std::int64_t{plan.gpu.sms} * plan.gpu.ctas;
  const auto tell = [&](const char* heading, std::int64_t of, const std::string& what) {
    const std::int64_t waves = ceil_div(of, slots);
    story->tell(heading, text(of, " CTAs, ", plan.gpu.ctas, " an SM: ", waves, waves == 1 ? " wave" : " waves", what),
                {{heading, Json::object({{"ctas", of}, {"ctas_an_sm", plan.gpu.ctas}, {"waves", waves}})}});
  };
  if (wide > 0) tell("wide", wide, text(", each with all ", linear.problem.d_v, " columns of a head"));
  if (wide == ctas && ctas > 0) return;
  tell("grid", ctas - wide, "");
  story->tell("shared", text(bytes_text(facts.shared_bytes), " a CTA, ", facts.threads, " threads"),
              {{"shared_bytes", facts.shared_bytes}});
}

void tell_gpu(const PlanData& plan, Story* story) {
  const gpu::LinearAttentionFacts& facts = plan.variant->facts_as<gpu::LinearVariantFacts>();
  story->note({{"tile", Json::object({{"chunk", facts.chunk}, {"d", facts.d}, {"threads", facts.threads}})}});
  tell_grids(plan, story);
  story->tell("workspace", bytes(plan.workspace));
}

}  // namespace

void tell_linear(const PlanData& plan, Story* story) {
  const LinearAttention& a = plan.linear().problem;
  if (plan.variant == nullptr) return story->tell("workspace", bytes(plan.workspace));
  if (plan.items == 0) return story->tell("chunks", "none: the problem is empty");
  story->tell("chunks", text(linear_chunk(plan), " tokens; the state of a head, ", a.d_qk, " x ",
                             a.d_v + (a.normalise ? 1 : 0), " f32, goes along"));
  tell_segments(plan, story);
  if (plan.backend == Backend::cpu) {
    tell_cpu(plan, story);
  } else {
    tell_gpu(plan, story);
  }
}

}  // namespace falchion
