// src/plan/explain_parts.cpp: see explain.hpp.
#include <algorithm>

#include "plan/explain.hpp"
#include "plan/text.hpp"

namespace falchion {

std::string level_text(const PlanData& plan) {
  return plan.variant == nullptr ? name(plan.backend) : text(name(plan.backend), " ", plan.variant->level);
}

void line(std::string* out, std::string_view heading, std::string_view body) {
  *out += heading;
  out->append(heading.size() < 12 ? 12 - heading.size() : 1, ' ');
  *out += text(body, "\n");
}

void explain_absence(const PlanData& plan, std::string* out) {
  if (!plan.any_build) return;
  const Variant& row = *plan.variant;
  const std::string what = text(name(row.backend), " ", row.level, " ", name(row.dtype), " d", row.d);
  if (built(row) == nullptr) {
    line(out, "not built",
         text("this build lacks the row ", what, " (FALCHION_CUDA is off, or FALCHION_VARIANTS left ",
              "it out), so Plan::make refuses; here is what a build that has it would do"));
  } else {
    line(out, "not here",
         text("there is no GPU here, so Plan::make refuses; here is what it would do on ", plan.gpu.device));
  }
}

void explain_paths(const PlanData& plan, const std::string& taken, std::string* out) {
  *out += "paths\n";
  std::size_t width = taken.size();
  for (const Rejected& path : plan.rejected) width = std::max(width, path.path.size());
  const auto row = [&](const std::string& path, const std::string& reason) {
    *out += text("  ", path, std::string(width - path.size() + 2, ' '), reason, "\n");
  };
  for (const Rejected& path : plan.rejected) row(path.path, path.reason);
  if (!taken.empty()) row(taken, plan.any_build ? "would be taken" : "taken");
}

}  // namespace falchion
