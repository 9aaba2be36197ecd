// tests/cuda/linear_wide_test.cpp: linear attention of so many heads that some CTAs of Hopper's rows in f32 have all
// 128 columns of one. The sizes are for an H200's 132 SMs.
#include <gtest/gtest.h>

#include "plan/plan_data.hpp"
#include "support/linear.hpp"

namespace falchion::testing {
namespace {

/// wide: the sweeps that such CTAs are for.
void expect_right(const Path& path, Pass pass, const LinearCase& row, int wide) {
  SCOPED_TRACE(row.name);
  LinearInstance x = make_linear_instance(row, DType::f32, 19);
  Plan plan;
  ASSERT_TRUE(Plan::make(x.problem, pass, path.target(), &plan));
  const PlanData& decided = *plan.data();
  if (decided.backend == Backend::sm90 && decided.gpu.sms != 132) GTEST_SKIP() << decided.gpu.sms << " SMs";
  EXPECT_EQ(decided.linear->wide, decided.backend == Backend::sm90 ? wide : 0);
  const Status status = run(path.target(), pass, &x);
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(x, linear_reference(x, pass), pass));
}

TEST(LinearWide, ForwardIsTheDefinition) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (dtype != DType::f32) return;
        for (const std::int64_t s : {1, 64, 65, 200})
          expect_right(path, Pass::forward, LinearCase{"lengths", 4, s, 18, 18, 128, 128}, 1);
        expect_right(path, Pass::forward, LinearCase{"reverse", 2, 200, 36, 36, 128, 128}.reverse(), 1);
        expect_right(path, Pass::forward, LinearCase{"heads that share", 4, 200, 6, 18, 128, 128}, 1);
        for (const Layout layout : {Layout::gaps, Layout::heads_first, Layout::odd})  // odd: another row's
          expect_right(path, Pass::forward, LinearCase{"layouts", 1, 200, 70, 70, 128, 128}.layout(layout), 1);
        expect_right(path, Pass::forward, LinearCase{"two waves", 1, 70, 199, 199, 128, 128}, 1);
        expect_right(path, Pass::forward, LinearCase{"nothing", 70, 0, 1, 1, 128, 128}, 1);
      },
      kLinearForward);
}
TEST(LinearWide, BackwardIsTheDefinition) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (dtype != DType::f32) return;
        for (const std::int64_t s : {1, 64, 65, 200})
          expect_right(path, Pass::backward, LinearCase{"some sweeps", 2, s, 32, 32, 128, 128}, 2);
        expect_right(path, Pass::backward, LinearCase{"all sweeps", 4, 200, 8, 8, 128, 128}, 3);
        expect_right(path, Pass::backward, LinearCase{"reverse", 4, 200, 8, 8, 128, 128}.reverse(), 3);
      },
      kLinearBackward);
}

}  // namespace
}  // namespace falchion::testing
