// tests/judge_compare_test.cpp: the comparison that both judges of softmax attention share (src/judge/compare.hpp).
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "judge/compare.hpp"

namespace falchion::testing {
namespace {

/// Compares one f16 number, given by its bits, with the definition's and the naive one.
std::string why_not(std::uint16_t bits, float exact, float naive) {
  const std::array<std::int64_t, 4> one{1, 1, 1, 1};
  const auto always = [](const auto&) { return true; };
  const auto never = [](const auto&, double, double) { return false; };
  judge::Comparison comparison("x");
  comparison.report.unit = judge::unit_at(DType::f16, exact);
  comparison.run(Tensor::dense(&exact, DType::f32, one), Tensor::dense(&naive, DType::f32, one),
                 Tensor::dense(&bits, DType::f16, one), always, never, [](const auto&, double) {});
  comparison.conclude();
  return comparison.report.why;
}
constexpr std::uint16_t kInf = 0x7C00, kMinusInf = 0xFC00;

/// What rounding may add can take a number past the range of f16, and then it is Inf.
TEST(JudgeCompare, AnInfStandsForTheFirstNumberPastTheRange) {
  EXPECT_EQ(why_not(kInf, 65000, 64700), "") << "the limit is 600 and a unit of 32, and 65536 is 536 away";
  EXPECT_EQ(why_not(kMinusInf, -65000, -64700), "");
  EXPECT_NE(why_not(kInf, 60000, 59900), "") << "the limit is 232, and 65536 is 5536 away";
  EXPECT_NE(why_not(kMinusInf, 65000, 64700), "") << "the sign is wrong";
}

}  // namespace
}  // namespace falchion::testing
