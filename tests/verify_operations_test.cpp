// tests/verify_operations_test.cpp: the command's table of operations (tools/problem/operation.cpp) agrees with the
// library's, and what a storm draws for an entry is planned as that operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "problem/operation.hpp"
#include "tool.hpp"
#include "verify/draw.hpp"
#include "verify/kind.hpp"

namespace falchion::tools {
namespace {

/// An operation that only ref has needs no entry: there is nothing to compare with the definition.
TEST(CommandOperations, EachThatTheLibraryHasAVariantOfIsInTheTable) {
  const auto all = listed_variants();
  for (const Operation& built : operations()) {
    if (std::none_of(all.begin(), all.end(), [&](const Variant& v) { return v.is(built.name); })) continue;
    const auto entries = command_operations();
    const auto is_it = [&](const CommandOperation& entry) {
      return std::strcmp(entry.operation, built.name) == 0 && entry.pass == built.pass;
    };
    EXPECT_EQ(std::count_if(entries.begin(), entries.end(), is_it), 1) << built.name;
  }
}

TEST(CommandOperations, StandInTheOrderOfTheirValuesAndAreFoundByName) {
  std::size_t at = 0;
  for (const CommandOperation& entry : command_operations()) {
    EXPECT_EQ(static_cast<std::size_t>(entry.op), at++) << entry.name;
    EXPECT_EQ(parse_op(entry.name), entry.op);
    EXPECT_NE(operation_list(entry.kind).find(entry.name), std::string::npos);
  }
  try {
    parse_op("linaer");
    ADD_FAILURE() << "it was accepted";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what, "--op: \"linaer\" is not one of attention, linear, linear-backward");
  }
  EXPECT_EQ(operation_list(Kind::linear), "linear and linear-backward");
}

TEST(CommandOperations, AStormPlansWhatItsEntryNames) {
  for (const CommandOperation& entry : command_operations()) {
    const storm::Problem problem = storm::draw_problem(1, 0, entry.op, {DType::f32});
    EXPECT_EQ(problem.kind(), entry.kind);
    Plan plan;
    const Status status =
        problem.ask([&](const auto& asked) { return Plan::make(asked, problem.pass(), Target(Backend::ref), &plan); });
    ASSERT_TRUE(status) << status.why << "\n" << storm::to_text(problem);
    EXPECT_STREQ(plan.data()->operation->name, entry.operation);
  }
}

TEST(CommandOperations, EachKindHasAllOfItsEntry) {
  for (const CommandOperation& entry : command_operations()) {
    const storm::Problem problem = storm::draw_problem(1, 0, entry.op, {DType::f32});
    const storm::StormKind& kind = storm::storm_kind(problem);
    EXPECT_TRUE(kind.draw != nullptr && kind.make_subject != nullptr && kind.tidy != nullptr) << entry.name;
    EXPECT_TRUE(kind.require_sound != nullptr && kind.simplify != nullptr) << entry.name;
    EXPECT_TRUE(kind.is_not_built_yet != nullptr && kind.may_exceed_the_hint != nullptr) << entry.name;
    EXPECT_FALSE(kind.operands.empty() || kind.scores.empty() || kind.plants.empty()) << entry.name;
  }
}

}  // namespace
}  // namespace falchion::tools
