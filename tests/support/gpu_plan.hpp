// tests/support/gpu_plan.hpp: problems, targets and the plans that are made for them, for the tests of the GPU's plans.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "api/data_of.hpp"
#include "api/validate.hpp"
#include "falchion/falchion.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"

namespace falchion::testing {

inline Attention problem(std::int64_t b, std::int64_t s_q, std::int64_t s_k, std::int64_t h_q, std::int64_t h_k,
                         std::int64_t d) {
  Attention a;
  a.b = b;
  a.s_q = s_q;
  a.s_k = s_k;
  a.h_q = h_q;
  a.h_k = h_k;
  a.d_qk = a.d_v = d;
  return a;
}
inline Attention causal(std::int64_t s, std::int64_t d) {
  Attention a = problem(4, s, s, 16, 16, d);
  a.band = {-1, 0, Align::bottom_right};
  return a;
}
inline Target on(int sm, Backend backend = Backend::best) {
  Target target(backend);
  target.sm = sm;
  return target;
}
inline Target hopper() { return on(90); }

/// A build may have all variants of a backend, some (FALCHION_VARIANTS) or none,
/// and what a plan decides depends on that.
inline bool has_variants(Backend backend, const char* operation = "attention_forward") {
  const auto listed = listed_variants();
  return std::all_of(listed.begin(), listed.end(),
                     [&](const Variant& v) { return v.backend != backend || !v.is(operation) || built(v) != nullptr; });
}
inline bool has_any_gpu_variant() {
  const auto all = variants();
  return std::any_of(all.begin(), all.end(),
                     [](const Variant& v) { return v.kernel_as<gpu::AttentionKernel>() != nullptr; });
}
inline bool has_all_gpu_variants(Pass pass) {
  const char* operation = pass == Pass::forward ? "attention_forward" : "attention_backward";
  return has_variants(Backend::sm80, operation) && has_variants(Backend::sm90, operation);
}
#define NEEDS_SM80_VARIANTS() \
  if (!has_variants(Backend::sm80)) GTEST_SKIP() << "this build has not all variants of sm80"

/// The plan for a GPU. A build with all variants plans normally. Any other build plans as if it had them, which works
/// because the facts of a variant are known without its code.
inline Status plan_on_gpu(const Attention& a, const Target& target, PlanData* out, Pass pass = Pass::forward) {
  if (!has_all_gpu_variants(pass)) {
    Status status = validate_problem(a, pass);
    if (status) status = validate_target(target);
    return status ? plan_problem(a, pass, target, out, true) : status;
  }
  Plan plan;
  const Status status = Plan::make(a, pass, target, &plan);
  if (status) *out = *data_of(plan);
  return status;
}

/// The variant that a problem takes, such as "sm90 plain bf16 64", or why there is none.
inline std::string variant_of(const Attention& a, const Target& target, Pass pass = Pass::forward) {
  PlanData plan;
  const Status status = plan_on_gpu(a, target, &plan, pass);
  if (!status) return status.why;
  const Variant* v = plan.variant;
  return v == nullptr ? "ref" : text(name(v->backend), " ", v->name(), " ", name(v->dtype), " ", v->d);
}
/// Everything decided about a problem that must have a plan.
inline PlanData decided(const Attention& a, const Target& target, Pass pass = Pass::forward) {
  PlanData plan;
  const Status status = plan_on_gpu(a, target, &plan, pass);
  EXPECT_TRUE(status) << status.why;
  return plan;
}
/// The whole text of explain(), as a build that has all variants gives it.
inline std::string story_of(const Attention& a, const Target& target, Pass pass = Pass::forward) {
  std::string story = explain(a, pass, target);
  if (story.starts_with("not built")) story.erase(0, story.find('\n') + 1);
  const std::string would = "would be taken\n";
  if (story.ends_with(would)) story.replace(story.size() - would.size(), would.size(), "taken\n");
  return story;
}

}  // namespace falchion::testing
