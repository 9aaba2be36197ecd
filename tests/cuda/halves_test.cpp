// tests/cuda/halves_test.cpp: softmax attention in f32 on Hopper, where each number is split into two f16 parts. Rows
// of very different sizes, infinities in every operand, and more packed rows than the workspace has places for. The
// cases of tests/cases.def and of the contract run on this path too (named_hopper in tests/support/paths.hpp).
#include <cmath>
#include <cstdint>

#include "api/data_of.hpp"
#include "device.hpp"
#include "plan/plan_data.hpp"
#include "runtime/runtime.hpp"
#include "support/compare.hpp"

namespace falchion::testing {
namespace {

std::string why_not_here() {
  if (!kHopper.has(DType::f32)) return "this build has no variant of sm90 for f32";
  return kHopper.why_not();
}

/// Runs the instance and compares it with the definition.
void expect_right(Instance* x) {
  const Status status = run(kHopper, x);
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(*x, Reference(*x)));
}

/// Multiplies each row of a tensor by a power of two between 2^least and 2^most.
void scale_rows(HostTensor* x, int least, int most) {
  x->for_each([&](auto b, auto s, auto h, auto d) {
    const auto row = static_cast<int>(b * 131 + s * 17 + h * 5);
    x->set(b, s, h, d, std::ldexp(x->get(b, s, h, d), least + row % (most - least + 1)));
  });
}

/// Each row has a factor of its own, so how large the rows beside it are makes no difference.
TEST(Halves, RowsOfAnySize) {
  if (const std::string why = why_not_here(); !why.empty()) GTEST_SKIP() << why;
  struct Powers {
    int least, most;
  };
  const Powers none{0, 0};
  const struct {
    Powers q, k, v;
  } all[] = {{{-30, 0}, {-30, 2}, {-40, 40}},
             {{100, 100}, {-100, -100}, {-100, -90}},
             {none, none, {90, 100}},
             {{-120, -110}, {110, 112}, none},
             {none, {-126, -100}, {-126, -100}}};
  for (const int d : {40, 64, 128, 256}) {
    for (const auto& sizes : all) {
      SCOPED_TRACE(::testing::Message() << "d " << d << ", q from 2^" << sizes.q.least << ", k from 2^" << sizes.k.least
                                        << ", v from 2^" << sizes.v.least);
      Instance x = make_instance(Case{"x", 2, 150, 200, 4, 2, d, d}.causal(), DType::f32);
      scale_rows(&x.q, sizes.q.least, sizes.q.most);
      scale_rows(&x.k, sizes.k.least, sizes.k.most);
      scale_rows(&x.v, sizes.v.least, sizes.v.most);
      expect_right(&x);
    }
  }
}

/// The factors of two huge rows together pass the range of f32, while their product does not: its large numbers meet
/// zeros, or numbers near 1.
TEST(Halves, HugeRowsWhoseProductIsSmall) {
  if (const std::string why = why_not_here(); !why.empty()) GTEST_SKIP() << why;
  for (const int d : {64, 128, 256}) {
    SCOPED_TRACE(::testing::Message() << "d " << d);
    Instance x = make_instance(Case{"x", 1, 150, 200, 2, 2, d, d}, DType::f32);
    const double huge = std::ldexp(1, 80);
    for (int c = 0; c < d; ++c) {
      for (const std::int64_t i : {3, 70}) x.q.set(0, i, 0, c, c == 0 ? huge : c == 1 && i == 70 ? 1 : 0);
      for (const std::int64_t j : {8, 120}) x.k.set(0, j, 0, c, c == 1 ? huge : 0);
    }
    expect_right(&x);
  }
}

/// No part can hold an infinity. What comes of it is computed from the operands, also in a band, a group of heads and
/// split keys, and by whichever warp has the row.
TEST(Halves, InfinitiesInEveryOperand) {
  if (const std::string why = why_not_here(); !why.empty()) GTEST_SKIP() << why;
  const Case cases[] = {Case{"full", 2, 150, 300, 2, 1, 64, 64}, Case{"causal", 2, 200, 200, 4, 2, 128, 128}.causal(),
                        Case{"grouped", 1, 40, 200, 8, 2, 64, 64}, Case{"split", 1, 128, 8192, 2, 2, 64, 64},
                        Case{"window", 1, 300, 300, 2, 2, 256, 256}.window(70, 10)};
  for (const Case& row : cases) {
    SCOPED_TRACE(row.name);
    Instance x = make_instance(row, DType::f32);
    for (const std::int64_t i : {0, 37, 101}) x.q.set(0, i % x.problem.s_q, 0, 3, i % 2 == 0 ? kInf : -kInf);
    for (const std::int64_t j : {5, 64, 130, 199}) x.k.set(0, j, 0, j % 7, j % 2 == 0 ? kInf : -kInf);
    for (const std::int64_t j : {9, 66, 131}) x.v.set(0, j, 0, j % 11, j % 2 == 0 ? kInf : -kInf);
    x.v.set(0, 140, 0, 30, kNan);
    expect_right(&x);
  }
}

/// The workspace holds b * s rows. Where more come, the general variant runs, which needs no place for them.
TEST(Halves, MorePackedRowsThanPlaces) {
  if (const std::string why = why_not_here(); !why.empty()) GTEST_SKIP() << why;
  for (const std::int64_t hint : {120, 40}) {
    Instance x = make_instance(Case{"x", 3, 120, 120, 2, 2, 64, 64}.packed({120, 7, 90}, {120, 64, 3}), DType::f32);
    x.problem.s_q = x.problem.s_k = hint;
    expect_right(&x);
  }
}

/// CTAs that go over several tiles, in problems that take this kernel unasked.
TEST(Halves, IsTheKernelThatRuns) {
  if (const std::string why = why_not_here(); !why.empty()) GTEST_SKIP() << why;
  for (const int d : {64, 128, 256}) {
    Instance x = make_instance(Case{"x", 2, 700, 700, 16, 16, d, d}.causal(), DType::f32);
    OnDevice device(Path{Backend::best, ""}, &x);
    ASSERT_OK(device.status());
    const PlanData& plan = *data_of(device.plan());
    EXPECT_STREQ(plan.variant->level, "halves");
    EXPECT_GT(plan.items, plan.attention().walkers);
    ASSERT_OK(device.run());
    ASSERT_OK(device.download());
    EXPECT_TRUE(matches(x, Reference(x)));
  }
}

}  // namespace
}  // namespace falchion::testing
