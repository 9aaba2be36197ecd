// tests/operations_test.cpp: checks that the table of operations (src/plan/operations.cpp) is complete. Each operation
// of variants.def must have an entry, an entry must have all that explain() asks of it, and what its variants need to
// be planned and run.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "api/runner.hpp"
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

/// A runner has what its variants need, and the definition always.
void expect_all_of(const Operation& x, const auto& runner) {
  EXPECT_TRUE(runner.operands != nullptr && runner.validate != nullptr && runner.nothing_to_do != nullptr) << x.name;
  EXPECT_TRUE(runner.check_lengths != nullptr && runner.run_on_ref != nullptr) << x.name;
  EXPECT_EQ(runner.run_on_cpu != nullptr, is_listed(x, false)) << x.name;
  for (const bool there : {runner.check_totals != nullptr, runner.choose != nullptr, runner.launch != nullptr})
    EXPECT_EQ(there, is_listed(x, true)) << x.name;
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

/// What can be planned can be run, with one kind of operands.
TEST(Operations, WhatIsBuiltHasARunner) {
  for (const Operation& x : operations()) {
    const int runners = (runner_of<Operands>(x) != nullptr) + (runner_of<LinearOperands>(x) != nullptr) +
                        (runner_of<GemmOperands>(x) != nullptr) + (runner_of<NormOperands>(x) != nullptr);
    EXPECT_EQ(runners, 1) << x.name;
    if (const auto* runner = runner_of<Operands>(x)) expect_all_of(x, *runner);
    if (const auto* runner = runner_of<LinearOperands>(x)) expect_all_of(x, *runner);
    if (const auto* runner = runner_of<GemmOperands>(x)) expect_all_of(x, *runner);
    if (const auto* runner = runner_of<NormOperands>(x)) expect_all_of(x, *runner);
  }
}

TEST(Operations, AProblemAndAPassNameOne) {
  EXPECT_STREQ(operation_of(Attention{}, Pass::forward).name, "attention_forward");
  EXPECT_STREQ(operation_of(Attention{}, Pass::backward).name, "attention_backward");
  EXPECT_STREQ(operation_of(LinearAttention{}, Pass::forward).name, "linear_attention_forward");
  EXPECT_STREQ(operation_of(LinearAttention{}, Pass::backward).name, "linear_attention_backward");
  EXPECT_STREQ(operation_of(Gemm{}).name, "gemm");
  EXPECT_STREQ(operation_of(Norm{}).name, "norm");
}

}  // namespace
}  // namespace falchion::testing
