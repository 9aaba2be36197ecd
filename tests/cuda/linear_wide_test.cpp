// tests/cuda/linear_wide_test.cpp: linear attention with so many heads that in f32 some CTAs of Hopper's variants take
// all 128 columns of a head. The sizes are chosen for the 132 SMs of an H200.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "api/data_of.hpp"
#include "plan/plan_data.hpp"
#include "support/linear.hpp"

namespace falchion::testing {
namespace {

/// wide is the number of sweeps that such CTAs must have in the plan.
void expect_right(const Path& path, Pass pass, const LinearCase& row, int wide) {
  SCOPED_TRACE(row.name);
  LinearInstance x = make_linear_instance(row, DType::f32, 19);
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, pass, path.target(), &plan));
  const PlanData& decided = *data_of(plan);
  if (decided.backend == Backend::sm90 && decided.gpu.sms != 132) GTEST_SKIP() << decided.gpu.sms << " SMs";
  EXPECT_EQ(decided.linear().wide, decided.backend == Backend::sm90 ? wide : 0);
  const Status status = run(path.target(), pass, &x);
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(x, linear_reference(x, pass), pass));
}

/// Checks each case in f32, together with the number of sweeps that such CTAs must have.
void expect_right(Pass pass, const char* operation, const std::vector<std::pair<LinearCase, int>>& rows) {
  on_every_path(
      [&](const Path& path, DType dtype) {
        if (dtype != DType::f32) return;
        for (const auto& [row, wide] : rows) expect_right(path, pass, row, wide);
      },
      operation);
}
TEST(LinearWide, ForwardIsTheDefinition) {
  const LinearCase layouts{"layouts", 1, 200, 70, 70, 128, 128};
  expect_right(Pass::forward, kLinearForward,
               {{LinearCase{"a token", 4, 1, 18, 18, 128, 128}, 1},
                {LinearCase{"a chunk", 4, 64, 18, 18, 128, 128}, 1},
                {LinearCase{"and a token", 4, 65, 18, 18, 128, 128}, 1},
                {LinearCase{"chunks", 4, 200, 18, 18, 128, 128}, 1},
                {LinearCase{"many chunks", 2, 650, 36, 36, 128, 128}, 1},
                {LinearCase{"growing", 2, 400, 36, 36, 128, 128}.growing(), 1},
                {LinearCase{"growing, narrow", 1, 400, 2, 2, 128, 128}.growing(), 0},
                {LinearCase{"growing, narrow, one segment", 1, 400, 2, 2, 128, 128}.growing().segments(1), 0},
                {LinearCase{"growing, backwards in time", 2, 400, 36, 36, 128, 128}.growing().reverse(), 1},
                {LinearCase{"reverse", 2, 200, 36, 36, 128, 128}.reverse(), 1},
                {LinearCase{"heads that share", 4, 200, 6, 18, 128, 128}, 1},
                {LinearCase{layouts}.layout(Layout::gaps), 1},
                {LinearCase{layouts}.layout(Layout::heads_first), 1},
                {LinearCase{layouts}.layout(Layout::odd), 1},  // This layout goes to another variant.
                {LinearCase{"two waves", 1, 70, 199, 199, 128, 128}, 1},
                {LinearCase{"nothing", 70, 0, 1, 1, 128, 128}, 1}});
}
TEST(LinearWide, BackwardIsTheDefinition) {
  expect_right(Pass::backward, kLinearBackward,
               {{LinearCase{"two sweeps, a token", 2, 1, 32, 32, 128, 128}, 2},
                {LinearCase{"two sweeps, a chunk", 2, 64, 32, 32, 128, 128}, 2},
                {LinearCase{"two sweeps, and a token", 2, 65, 32, 32, 128, 128}, 2},
                {LinearCase{"two sweeps, chunks", 2, 200, 32, 32, 128, 128}, 2},
                {LinearCase{"all sweeps", 4, 200, 8, 8, 128, 128}, 3},
                {LinearCase{"many chunks", 4, 650, 8, 8, 128, 128}, 3},
                {LinearCase{"growing", 4, 400, 8, 8, 128, 128}.growing(), 3},
                {LinearCase{"growing, narrow", 1, 400, 2, 2, 128, 128}.growing(), 0},
                {LinearCase{"reverse", 4, 200, 8, 8, 128, 128}.reverse(), 3}});
}

}  // namespace
}  // namespace falchion::testing
