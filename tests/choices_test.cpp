// tests/choices_test.cpp: the choices of a plan of a GPU: whatever operands a run has, one of them takes them, and the
// plan's own variant comes first. No GPU is needed.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/size.hpp"
#include "support/choices.hpp"
#include "support/gemm_plan.hpp"
#include "support/gpu_plan.hpp"

namespace falchion::testing {
namespace {

TEST(Choices, TheFirstWhoseNeedsAreMetIsTaken) {
  const std::vector<Choice> choices = {{nullptr, Condition::aligned | Condition::tma}, {nullptr, Condition::aligned}};
  const Conditions aligned = Condition::aligned;
  EXPECT_EQ(first_that_fits(choices, aligned | Condition::tma), &choices[0]);
  EXPECT_EQ(first_that_fits(choices, aligned | Condition::tma | Condition::room), &choices[0]) << "more than it needs";
  EXPECT_EQ(first_that_fits(choices, aligned | Condition::room), &choices[1]);
  EXPECT_EQ(first_that_fits(choices, Condition::tma), nullptr);
  EXPECT_EQ(first_that_fits({}, aligned), nullptr);
}

/// The list is in order: the plan's own variant first, each choice needs less than the one before, and the last needs
/// nothing. A batch may be one matrix, for which each variant has a choice more, before its other.
void expect_in_order(const PlanData& plan, bool has_batch = false) {
  const std::vector<Choice>& choices = plan.gpu.choices;
  ASSERT_FALSE(choices.empty());
  EXPECT_EQ(choices.front().variant, plan.variant);
  EXPECT_TRUE(choices.back().needs.empty());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    EXPECT_EQ(choices[i].needs.has(Condition::one_matrix), has_batch && i % 2 == 0) << i;
    if (i == 0) continue;
    EXPECT_NE(choices[i].needs, choices[i - 1].needs) << i;
    EXPECT_TRUE((choices[i].needs - Condition::one_matrix - choices[i - 1].needs).empty()) << i;
  }
}

template <class Problem>
void expect_in_order(const Problem& problem, Pass pass, const Target& target, bool has_batch = false) {
  PlanData plan;
  const Status status = plan_problem(problem, pass, target, &plan, true);
  if (status.why.find("a CTA needs") != std::string::npos) return;  // of linear attention in f32, on sm_80
  ASSERT_TRUE(status) << status.why;
  SCOPED_TRACE(describe(plan));
  expect_in_order(plan, has_batch);
}

const Target kTargets[] = {on(80), on(90), on(90, Backend::sm80)};

TEST(Choices, OfAttentionTakeAnyOperands) {
  for (const Target& target : kTargets)
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const std::int64_t d : {32, 64, 96, 100, 128, 192, 256})
        for (const std::int64_t s : {1, 64, 2048})
          for (const bool packed : {false, true})
            for (const Pass pass : {Pass::forward, Pass::backward}) {
              Attention a = problem(2, s, 2048, 8, 2, d);
              a.dtype = dtype;
              a.packed = packed;
              expect_in_order(a, pass, target);
            }
}

TEST(Choices, OfLinearAttentionTakeAnyOperands) {
  for (const Target& target : kTargets)
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const std::int64_t d : {60, 64, 128, 256})
        for (const bool normalise : {false, true})
          for (const Pass pass : {Pass::forward, Pass::backward}) {
            LinearAttention a;
            a.dtype = dtype;
            a.b = 2;
            a.s = 4096;
            a.h_qk = a.h_v = 8;
            a.d_qk = a.d_v = d;
            a.normalise = normalise;
            expect_in_order(a, pass, target);
          }
}

TEST(Choices, OfGemmsTakeAnyOperands) {
  for (const Target& target : kTargets)
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::i8})
      for (const std::int64_t m : {0, 16, 4096})
        for (const std::int64_t batch : {1, 3}) {
          Gemm g = gemm(m, 4096, 4096, dtype);
          g.batch = batch;
          if (size_of(dtype) == 1) g.dtype_d = DType::bf16;
          expect_in_order(g, Pass::forward, target, batch > 1);
        }
}

TEST(Choices, OfNormsTakeAnyOperands) {
  for (const std::int64_t d : {7, 4096}) {
    PlanData plan;
    ASSERT_TRUE(plan_problem(Norm{.dtype = DType::bf16, .rows = 3, .d = d}, Pass::forward, on(90), &plan, true));
    expect_in_order(plan);
    EXPECT_EQ(plan.gpu.choices.size(), d == 7 ? 1U : 2U) << "single numbers alone where d is odd";
  }
}

TEST(Choices, OfQuantiseTakeAnyOperands) {
  for (const std::int64_t d : {7, 128}) {
    PlanData plan;
    const Quantise q{.b = 1, .s = 300, .h = 2, .d = d, .rows = 128};
    ASSERT_TRUE(plan_problem(q, Pass::forward, on(90), &plan, true));
    expect_in_order(plan);
    EXPECT_EQ(plan.gpu.choices.size(), d == 7 ? 1U : 2U) << "single numbers alone where d is odd";
  }
}

/// Without a variant for the rest the list ends with one that needs something, and explain() says so.
TEST(Choices, WhatNoneTakesIsTold) {
  PlanData plan = decided(problem(2, 512, 512, 4, 4, 128), hopper());
  const std::string none = "  none               any others: this build has no general variant\n";
  EXPECT_EQ(explain(plan).find(none), std::string::npos) << explain(plan);
  plan.gpu.choices.back().needs = Condition::aligned;
  EXPECT_NE(explain(plan).find(none), std::string::npos) << explain(plan);
}

}  // namespace
}  // namespace falchion::testing
