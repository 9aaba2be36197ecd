// tests/tolerance_test.cpp: tests the tolerance rule itself, sentence by sentence of docs/contract.md: what it lets
// through and what it does not.
#include <gtest/gtest.h>

#include <cmath>

#include "support/compare.hpp"
#include "support/contract.hpp"
#include "support/linear.hpp"

namespace falchion::testing {
namespace {

/// Returns a right result of ref in this type, with row max and probabilities.
Instance right_result(DType dtype) {
  Instance x = make_instance(Case{"x", 1, 5, 9, 1, 1, 8, 8}.row_max().probabilities(), dtype);
  EXPECT_TRUE(run(Target(Backend::ref), &x));
  return x;
}

/// Returns how far, in units, an element of this output may be from a right one before it is no longer let through, and
/// how far the rule says that is.
void expect_limit(judge::AttentionOutput which, HostTensor Instance::*output, DType dtype, DType unit_of,
                  double least) {
  const Reference reference(right_result(dtype));
  double found = 0, rule = 0;
  for (bool fits = true; fits && found < 100;) {
    found += 1. / 16;
    Instance x = right_result(dtype);
    HostTensor& changed = x.*output;
    double largest = least;
    changed.for_each([&](auto i, auto j, auto k, auto l) {
      largest = std::max(largest, std::abs(static_cast<double>(changed.get(i, j, k, l))));
    });
    const double unit = unit_at(unit_of, largest);
    changed.set(0, 0, 0, 0, static_cast<float>(changed.get(0, 0, 0, 0) + found * unit));
    const judge::ErrorReport report = reference.judge().check(which, changed.view(), false);
    rule = 2 * std::max(report.naive_error, report.granted) / unit + 1;
    fits = static_cast<bool>(matches(x, reference));
  }
  EXPECT_NEAR(found, rule, 1);  // The element is rounded itself.
}

TEST(ToleranceRule, TheUnitOfEachOutput) {
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(name(dtype));
    const DType sums = dtype == DType::f32 ? DType::f32 : DType::f16;
    expect_limit(judge::AttentionOutput::o, &Instance::o, dtype, dtype, 0);
    expect_limit(judge::AttentionOutput::lse, &Instance::lse, dtype, sums, 1);
    expect_limit(judge::AttentionOutput::row_max, &Instance::row_max, dtype, sums, 1);
    expect_limit(judge::AttentionOutput::probabilities, &Instance::probabilities, dtype, sums, 0);
  }
}

TEST(ToleranceRule, InfinityNextToTheLargestNumber) {
  // f16 ends at 65504, and 65472 is one unit below.
  for (const float size : {65504.f, 60000.f}) {
    SCOPED_TRACE(size);
    Instance x = make_instance(Case{"x", 1, 2, 1, 1, 1, 8, 8}, DType::f16);
    x.v.for_each([&](auto b, auto s, auto h, auto d) { x.v.set(b, s, h, d, size); });
    ASSERT_TRUE(run(Target(Backend::ref), &x));
    const Reference exact(x);
    EXPECT_TRUE(matches(x, exact));
    x.o.set(0, 1, 0, 3, kInf);
    EXPECT_EQ(static_cast<bool>(matches(x, exact)), size == 65504.f);
    x.o.set(0, 1, 0, 3, -kInf);
    EXPECT_FALSE(matches(x, exact));
    x.o.set(0, 1, 0, 3, kNan);
    EXPECT_FALSE(matches(x, exact));
  }
}

/// Rounding an element that stands out to 16 bits costs more than ten times the allowed part of the RMS.
TEST(LinearContract, TheToleranceOfAnElementThatStandsOut) {
  LinearInstance x = make_linear_instance(LinearCase{"x", 1, 3000, 1, 1, 8, 8}, DType::bf16, 21);
  x.q.for_each([&](auto b, auto s, auto h, auto d) { x.q.set(b, s, h, d, s == 2999 ? 1 : 1e-4f); });
  const LinearInstance exact = linear_reference(x, Pass::forward);
  ASSERT_TRUE(run(Target(Backend::ref), Pass::forward, &x));
  EXPECT_TRUE(matches(x, exact, Pass::forward));
  double sum = 0, largest_error = 0;
  exact.o.for_each([&](auto b, auto s, auto h, auto d) {
    const double want = exact.o.get(b, s, h, d);
    sum += want * want;
    largest_error = std::max(largest_error, std::abs(x.o.get(b, s, h, d) - want));
  });
  EXPECT_GT(largest_error, 10 * 5e-3 * std::sqrt(sum / (3000 * 8)));
}

}  // namespace
}  // namespace falchion::testing
