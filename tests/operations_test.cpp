// tests/operations_test.cpp: checks that the table of operations (src/api/operations.cpp) is complete. Each operation
// of variants.def must have an entry, an entry must have all that explain() asks of it, and what its variants need to
// be planned and run.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "api/operand_list.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"

namespace falchion::testing {
namespace {

TEST(Operations, EachVariantBelongsToOne) {
  std::set<std::string> names;
  for (const Operation& operation : operations()) EXPECT_TRUE(names.insert(operation.name).second) << operation.name;
  for (const Variant& variant : listed_variants()) EXPECT_EQ(names.count(variant.op), 1U) << variant.op;
}

/// Does variants.def list the operation for a GPU, or else for the CPU?
bool is_listed(const Operation& x, bool for_gpu) {
  const auto all = listed_variants();
  return std::any_of(all.begin(), all.end(),
                     [&](const Variant& v) { return v.is(x.name) && is_gpu(v.backend) == for_gpu; });
}

TEST(Operations, AnEntryHasAllOfAPart) {
  for (const Operation& x : operations()) {
    SCOPED_TRACE(x.name);
    EXPECT_TRUE(x.dtype != nullptr && x.describe != nullptr && x.facts != nullptr);
    EXPECT_TRUE(x.tell_problem != nullptr && x.tell_decision != nullptr);
    EXPECT_TRUE(x.resolve != nullptr && x.plan_gpu != nullptr && x.ref_workspace != nullptr);
    EXPECT_EQ(x.plan_cpu != nullptr, is_listed(x, false)) << "it plans for the CPU just where a CPU has a variant";
  }
}

/// What can be planned can be run: an entry has what its variants need, and the definition always.
template <class Problem>
void expect_to_run(const Problem& problem) {
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const auto& x = operation_of(problem, pass);
    SCOPED_TRACE(x.name);
    EXPECT_TRUE(x.operands != nullptr && x.validate != nullptr && x.nothing_to_do != nullptr);
    EXPECT_TRUE(x.check_lengths != nullptr && x.run_on_ref != nullptr);
    EXPECT_EQ(x.run_on_cpu != nullptr, is_listed(x, false));
    for (const bool there : {x.check_totals != nullptr, x.layout != nullptr, x.launch != nullptr})
      EXPECT_EQ(there, is_listed(x, true));
  }
}
TEST(Operations, WhatIsPlannedCanRun) {
  expect_to_run(Attention{});
  expect_to_run(LinearAttention{});
  expect_to_run(Gemm{});
  expect_to_run(Norm{});
  expect_to_run(Quantise{});
}

/// The entries of all problems and passes are those of the table.
TEST(Operations, TheTableHasThoseOfEachProblem) {
  std::set<const Operation*> of_problems, of_table;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    of_problems.insert(&operation_of(Attention{}, pass));
    of_problems.insert(&operation_of(LinearAttention{}, pass));
    of_problems.insert(&operation_of(Gemm{}, pass));
    of_problems.insert(&operation_of(Norm{}, pass));
    of_problems.insert(&operation_of(Quantise{}, pass));
  }
  for (const Operation& operation : operations()) of_table.insert(&operation);
  EXPECT_EQ(of_problems, of_table);
}

TEST(Operations, AProblemAndAPassNameOne) {
  EXPECT_STREQ(operation_of(Attention{}, Pass::forward).name, "attention_forward");
  EXPECT_STREQ(operation_of(Attention{}, Pass::backward).name, "attention_backward");
  EXPECT_STREQ(operation_of(LinearAttention{}, Pass::forward).name, "linear_attention_forward");
  EXPECT_STREQ(operation_of(LinearAttention{}, Pass::backward).name, "linear_attention_backward");
  EXPECT_STREQ(operation_of(Gemm{}).name, "gemm");
  EXPECT_STREQ(operation_of(Norm{}).name, "norm");
  EXPECT_STREQ(operation_of(Norm{}, Pass::backward).name, "norm_backward");
  EXPECT_STREQ(operation_of(Quantise{}).name, "quantise");
}

/// A plan has its entry, so that no run looks for it; operands of another problem find none.
TEST(Operations, APlanKeepsItsEntry) {
  PlanData plan;
  ask(Norm{}, Pass::forward, Target{}, &plan);
  EXPECT_EQ(operation_in<Norm>(plan), &operation_of(Norm{}));
  EXPECT_EQ(operation_in<Gemm>(plan), nullptr);
  EXPECT_EQ(operation_in<Attention>(plan), nullptr);
  ask(LinearAttention{}, Pass::backward, Target{}, &plan);
  EXPECT_EQ(operation_in<LinearAttention>(plan), &operation_of(LinearAttention{}, Pass::backward));
  EXPECT_EQ(operation_in<Norm>(plan), nullptr);
}

}  // namespace
}  // namespace falchion::testing
