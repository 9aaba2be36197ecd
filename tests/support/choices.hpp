// tests/support/choices.hpp: what a run of a plan of a GPU takes, for the tests of plans.
#pragma once

#include <string>

#include "plan/plan_data.hpp"
#include "plan/text.hpp"

namespace falchion::testing {

/// What a run takes for operands that lie so: "sm80 general unaligned", or "none".
inline std::string taken_for(const PlanData& plan, const falchion::Layout& layout) {
  const Choice* taken = first_that_fits(plan.gpu.choices, layout.met);
  if (taken == nullptr) return "none";
  return text(name(taken->variant->backend), " ", taken->variant->name(),
              layout.met.has(Condition::aligned) ? "" : " unaligned");
}

/// As plan/gemm_gpu.hpp's own_cut(), of the last choice.
inline GemmGpuCut last_cut(const PlanData& plan) { return plan.gpu.choices.back().cut_as<GemmGpuCut>(); }

/// The variant of the last choice, where it takes any operands. Null: some are refused.
inline const Variant* for_any(const PlanData& plan) {
  const Choice* last = first_that_fits(plan.gpu.choices, {});
  return last == nullptr ? nullptr : last->variant;
}

}  // namespace falchion::testing
