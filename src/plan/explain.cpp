// src/plan/explain.cpp: explains a plan, as text and as JSON; tests compare both. docs/explain.md lists the keys of the
// JSON.
#include "plan/explain.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "plan/operation.hpp"
#include "plan/text.hpp"

namespace falchion {
namespace {

void note_status(const Status& status, Story* story) {
  story->note({{"falchion", version()}, {"status", Json::object({{"code", name(status.code)}, {"why", status.why}})}});
}

void note_question(const PlanData& plan, Story* story) {
  story->note({{"op", plan.operation->name}, {"pass", name(plan.pass)}, {"problem", plan.operation->facts(plan)}});
}

bool is_built(const PlanData& plan) { return !plan.any_build || built(*plan.variant) != nullptr; }

/// " d128", or nothing of a variant that has no head dim.
std::string head_dim_text(const Variant& variant) { return variant.d > 0 ? text(" d", variant.d) : ""; }

/// For a plan for any build: that this build lacks the variant, or that there is no GPU. Nothing if it could run.
void tell_absence(const PlanData& plan, const Status& made, Story* story) {
  if (!plan.any_build) return;
  const Variant& variant = *plan.variant;
  const std::string what =
      text(name(variant.backend), " ", variant.name(), " ", name(variant.dtype), head_dim_text(variant));
  if (!is_built(plan)) {
    story->tell("not built",
                text("this build lacks the variant ", what, " (FALCHION_CUDA is off, or FALCHION_VARIANTS left ",
                     "it out), so Plan::make refuses; here is what a build that has it would do"));
  } else {
    story->tell("not here", text("Plan::make refuses (", made.why, "); here is what it would do on ", plan.gpu.device));
  }
}

/// Kernels of Hopper whose CTAs go on to other tiles are held to the SMs of the plan. All others have a CTA for each
/// tile.
void tell_device(const PlanData& plan, Story* story) {
  const GpuPlan& gpu = plan.gpu;
  const bool go_on = plan.variant->is("attention_forward") || plan.variant->is("gemm") ||
                     (plan.variant->is("attention_backward") && plan.attention().walkers > 0);
  const bool held = plan.backend == Backend::sm90 && go_on;
  std::string what = text(gpu.device, ": ", gpu.all_sms, " SMs");
  Json facts = Json::object({{"name", gpu.device}, {"sm", gpu.sm}, {"sms", gpu.all_sms}});
  if (plan.target.sms > 0) {
    what += text(held ? ", of which the plan uses " : ", of which the plan is for ", gpu.sms,
                 held ? "" : "; its CTAs have a tile each, and go to any SM that is free");
    facts = facts.with("sms_of_plan", gpu.sms).with("held", held);
  }
  story->tell("device", what, {{"device", facts}});
}

void tell_decision(const PlanData& plan, Story* story) {
  const DType dtype = plan.operation->dtype(plan);
  const Variant* variant = plan.variant;
  story->tell("decision",
              plan.backend == Backend::ref ? "ref: the definition in double, naive, one thread" : level_text(plan),
              {{"describe", describe(plan)},
               {"decision", Json::object({{"backend", name(plan.backend)},
                                          {"level", variant != nullptr ? Json(variant->level) : nullptr},
                                          {"tile", tile_json(variant)},
                                          {"dtype", name(dtype)},
                                          {"d", variant != nullptr && variant->d > 0 ? Json(variant->d) : nullptr},
                                          {"built", is_built(plan)},
                                          {"here", !is_gpu(plan.backend) || plan.gpu.ordinal >= 0}})},
               {"workspace_bytes", plan.workspace}});
  if (variant != nullptr && is_gpu(plan.backend)) tell_device(plan, story);
}

/// Each path that was considered, with its reason; taken: the last one, or "".
void tell_paths(const PlanData& plan, const std::string& taken, Story* story) {
  std::size_t width = taken.size();
  for (const Rejected& path : plan.rejected) width = std::max(width, path.path.size());
  const auto line = [&](const std::string& path, std::string_view reason) {
    story->line(text("  ", path, std::string(width - path.size() + 2, ' '), reason));
  };
  std::vector<Json> rejected;
  story->line("paths");
  for (const Rejected& path : plan.rejected) {
    line(path.path, path.reason);
    rejected.push_back(Json::object({{"path", path.path}, {"reason", path.reason}}));
  }
  if (!taken.empty()) line(taken, plan.any_build ? "would be taken" : "taken");
  story->note({{"rejected", Json::array(rejected)}});
}

}  // namespace

std::string level_text(const PlanData& plan) {
  return plan.variant == nullptr ? name(plan.backend) : text(name(plan.backend), " ", plan.variant->name());
}

Json tile_json(const Variant* variant) {
  return variant != nullptr && variant->tile != VariantTile::usual ? Json(variant->tile_name) : nullptr;
}

std::string describe(const PlanData& plan) { return plan.operation->describe(plan); }

std::string explain(const PlanData& plan, Format format, const Status& made) {
  Story story;
  note_status(made, &story);
  note_question(plan, &story);
  tell_absence(plan, made, &story);
  plan.operation->tell_problem(plan, &story);
  tell_decision(plan, &story);
  plan.operation->tell_decision(plan, &story);
  if (is_gpu(plan.backend)) tell_choices(plan, &story);
  const DType dtype = plan.operation->dtype(plan);
  tell_paths(plan, text(level_text(plan), plan.backend == Backend::ref ? "" : text(" ", name(dtype))), &story);
  return story.in(format);
}

std::string explain_refusal(const PlanData& asked, const Status& refusal, Format format) {
  PlanData plan = asked;
  Story story;
  note_status(refusal, &story);
  const bool countable = refusal.code != Code::invalid;
  if (countable) plan.operation->resolve(&plan);  // it may have been refused before that
  note_question(plan, &story);
  if (countable) plan.operation->tell_problem(plan, &story);
  story.tell("decision", text("refused (", name(refusal.code), "): ", refusal.why));
  if (!plan.rejected.empty()) tell_paths(plan, "", &story);
  return story.in(format);
}

std::string explain_refusal(const Status& refusal, Format format) {
  Story story;
  note_status(refusal, &story);
  story.tell("decision", text("refused (", name(refusal.code), "): ", refusal.why));
  return story.in(format);
}

}  // namespace falchion
