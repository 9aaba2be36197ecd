// tests/support/gpu_plan.hpp: problems, targets and what is decided about them, for the tests of the GPU's plans.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"

namespace falchion::testing {

inline Attention problem(std::int64_t b, std::int64_t s_q, std::int64_t s_k, std::int64_t h_q, std::int64_t h_k,
                         std::int64_t d) {
  Attention a;
  a.b = b, a.s_q = s_q, a.s_k = s_k, a.h_q = h_q, a.h_k = h_k, a.d_qk = a.d_v = d;
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

/// A build may have all rows of a backend, some (FALCHION_VARIANTS) or none: what is decided depends on it.
inline bool has_rows(Backend backend) {
  const auto listed = listed_variants();
  return std::all_of(listed.begin(), listed.end(), [&](const Variant& v) {
    return v.backend != backend || !v.is("attention_forward") || built(v) != nullptr;
  });
}
inline bool has_any_gpu_row() {
  const auto rows = variants();
  return std::any_of(rows.begin(), rows.end(), [](const Variant& v) { return v.gpu != nullptr; });
}
#define NEEDS_SM80_ROWS() \
  if (!has_rows(Backend::sm80)) GTEST_SKIP() << "this build has not all rows of sm80"
#define NEEDS_GPU_ROWS() \
  if (!has_rows(Backend::sm80) || !has_rows(Backend::sm90)) GTEST_SKIP() << "this build has not all GPU rows"

/// The row that a problem takes, as "sm90 plain bf16 64", or why none.
inline std::string row_of(const Attention& a, const Target& target) {
  Plan plan;
  const Status status = Plan::make(a, Pass::forward, target, &plan);
  if (!status) return status.why;
  const Variant* row = plan.data()->variant;
  return row == nullptr ? "ref" : text(name(row->backend), " ", row->level, " ", name(row->dtype), " ", row->d);
}
/// Everything decided about a problem that must have a plan.
inline PlanData decided(const Attention& a, const Target& target) {
  Plan plan;
  const Status status = Plan::make(a, Pass::forward, target, &plan);
  EXPECT_TRUE(status) << status.why;
  return status ? *plan.data() : PlanData{};
}

}  // namespace falchion::testing
