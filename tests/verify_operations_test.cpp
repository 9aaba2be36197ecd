// tests/verify_operations_test.cpp: the command's table of operations (tools/problem/operation.cpp) agrees with the
// library's, and what a storm draws for an entry is planned as that operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "api/data_of.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "problem/operation.hpp"
#include "tool.hpp"
#include "verify/draw.hpp"
#include "verify/kind.hpp"
#include "verify/paths.hpp"

namespace falchion::tools {
namespace {

/// Each operation of the library has its entry, also one that only ref has, and each entry names an operation: its own,
/// of its own pass.
TEST(CommandOperations, AreThoseOfTheLibrary) {
  const auto entries = command_operations();
  const auto built = operations();
  const auto fit = [](const CommandOperation& entry, const Operation& operation) {
    return std::strcmp(entry.operation, operation.name) == 0 && entry.pass == operation.pass;
  };
  for (const Operation& operation : built) {
    const auto is_it = [&](const CommandOperation& entry) { return fit(entry, operation); };
    EXPECT_EQ(std::count_if(entries.begin(), entries.end(), is_it), 1) << operation.name;
  }
  for (const CommandOperation& entry : entries) {
    const auto is_it = [&](const Operation& operation) { return fit(entry, operation); };
    EXPECT_EQ(std::count_if(built.begin(), built.end(), is_it), 1) << entry.name;
  }
}

/// Whatever variants are listed, a storm of any operation has a path for each type: ref and `best` are always there,
/// and a back end or level is one exactly where it lists a variant of the operation for the type.
TEST(CommandOperations, AStormHasAPathOfEachThatIsBuilt) {
  const auto all = variants();
  for (const CommandOperation& entry : command_operations()) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      EXPECT_EQ(storm::storm_paths("ref", "", entry.op, dtype).size(), 1U) << entry.name;
      EXPECT_FALSE(storm::storm_paths("best", "", entry.op, dtype).empty()) << entry.name;
      for (const Backend backend : {Backend::cpu, Backend::sm80, Backend::sm90}) {
        const bool listed = std::any_of(all.begin(), all.end(), [&](const Variant& v) {
          return v.backend == backend && v.is(entry.operation) && v.dtype == dtype;
        });
        EXPECT_EQ(storm::has_variant({backend, ""}, entry.op, dtype), listed) << entry.name;
      }
    }
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
    EXPECT_EQ(error.what,
              "--op: \"linaer\" is not one of attention, linear, linear-backward, attention-backward, gemm, "
              "norm, quantise, norm-backward; did you mean linear?");
  }
  EXPECT_EQ(operation_list(Kind::linear), "linear and linear-backward");
  EXPECT_EQ(operation_list(Kind::attention), "attention and attention-backward");
}

TEST(CommandOperations, AStormPlansWhatItsEntryNames) {
  for (const CommandOperation& entry : command_operations()) {
    const storm::Problem problem = storm::draw_problem(1, 0, entry.op, {DType::f32});
    EXPECT_EQ(problem.kind(), entry.kind);
    Plan plan;
    const Status status = storm::make_plan(problem, Target(Backend::ref), &plan);
    ASSERT_TRUE(status) << status.why << "\n" << storm::to_text(problem);
    EXPECT_STREQ(data_of(plan)->operation->name, entry.operation);
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
