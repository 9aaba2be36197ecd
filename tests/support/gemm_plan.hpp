// tests/support/gemm_plan.hpp: products and what the plan decides for them on a GPU, for the tests of those decisions.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/gpu_plan.hpp"

namespace falchion::testing {

inline Gemm gemm(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = DType::bf16) {
  return {.dtype = dtype, .m = m, .n = n, .k = k};
}
inline PlanData decided(const Gemm& g, const Target& target) {
  PlanData plan;
  const Status status = plan_problem(g, Pass::forward, target, &plan, true);
  EXPECT_TRUE(status) << status.why;
  return plan;
}
inline std::string level_of(const Gemm& g, const Target& target) {
  const PlanData plan = decided(g, target);
  return plan.variant == nullptr ? "ref" : text(name(plan.backend), " ", plan.variant->name());
}

}  // namespace falchion::testing
