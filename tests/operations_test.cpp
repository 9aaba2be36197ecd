// tests/operations_test.cpp: checks that the table of operations (src/plan/operations.cpp) is complete. Each operation
// of variants.def must have an entry, and an entry must have all that explain() asks of it. An operation that is not
// built must be refused.
#include <gtest/gtest.h>

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

TEST(Operations, AnEntryHasAllOfAPart) {
  for (const Operation& x : operations()) {
    SCOPED_TRACE(x.name);
    EXPECT_TRUE(x.dtype != nullptr && x.describe != nullptr && x.facts != nullptr);
    EXPECT_TRUE(x.tell_problem != nullptr && x.tell_decision != nullptr);
    const int planned =
        (x.resolve != nullptr) + (x.plan_gpu != nullptr) + (x.plan_cpu != nullptr) + (x.ref_workspace != nullptr);
    EXPECT_TRUE(planned == 0 || planned == 4);
  }
}

/// What can be planned can be run, with one kind of operands.
TEST(Operations, WhatIsBuiltHasARunner) {
  for (const Operation& x : operations()) {
    const int runners = (runner_of<Operands>(x) != nullptr) + (runner_of<LinearOperands>(x) != nullptr);
    EXPECT_EQ(runners, x.resolve != nullptr ? 1 : 0) << x.name;
  }
}

TEST(Operations, AProblemAndAPassNameOne) {
  EXPECT_STREQ(operation_of(Attention{}, Pass::forward).name, "attention_forward");
  EXPECT_STREQ(operation_of(Attention{}, Pass::backward).name, "attention_backward");
  EXPECT_STREQ(operation_of(LinearAttention{}, Pass::forward).name, "linear_attention_forward");
  EXPECT_STREQ(operation_of(LinearAttention{}, Pass::backward).name, "linear_attention_backward");
}

TEST(Operations, WhatIsNotBuiltIsRefused) {
  PlanData plan;
  const Status status = plan_problem(Attention{}, Pass::backward, Target{}, &plan);
  EXPECT_EQ(status.code, Code::unsupported);
  EXPECT_EQ(status.why, "pass = backward: attention_backward is not built yet; built: forward");
}

}  // namespace
}  // namespace falchion::testing
