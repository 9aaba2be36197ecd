// tests/judge_gemm_test.cpp: what the judge of GEMMs grants sums of e4m3 on Hopper's tensor cores, held against a model
// of them: an instruction adds 32 products to a sum, and cuts off what is more than 13 bits behind the largest of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>

#include "support/gemm.hpp"

namespace falchion::testing {
namespace {

using judge::Sums;

/// x without what is smaller than the last of 13 bits behind the first one of `largest`.
double cut(double x, double largest) {
  if (largest == 0) return 0;
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 13);
  return std::trunc(x / unit) * unit;
}

/// The sum of products [first, end) of a row and a column.
double sum_of_tensor_cores(const GemmInstance& x, std::int64_t i, std::int64_t j, std::int64_t first,
                           std::int64_t end) {
  double sum = 0;
  for (; first < end; first += 32) {
    double product[32] = {}, largest = std::abs(sum);
    for (std::int64_t k = first; k < std::min(first + 32, end); ++k) {
      product[k - first] = static_cast<double>(x.a.get(0, i, 0, k)) * x.b.get(0, j, 0, k);
      largest = std::max(largest, std::abs(product[k - first]));
    }
    sum = cut(sum, largest);
    for (const double p : product) sum += cut(p, largest);
    sum = cut(sum, sum);
  }
  return sum;
}

/// Fills d with sums whose blocks of so many products are added in f32.
void run_on_model(GemmInstance* x, std::int64_t block) {
  const std::int64_t k = x->problem.k;
  x->d.for_each([&](auto, auto i, auto, auto j) {
    float sum = 0;
    for (std::int64_t first = 0; first < k; first += block)
      sum += static_cast<float>(sum_of_tensor_cores(*x, i, j, first, std::min(first + block, k)));
    x->d.set(0, i, 0, j, sum);
  });
}

GemmInstance instance(std::int64_t k, bool one_sign) {
  GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 24, 30, k}.d_f32(), DType::e4m3, static_cast<std::uint64_t>(k));
  if (one_sign)
    for (HostTensor* operand : {&x.a, &x.b})
      operand->for_each([&](auto... at) { operand->set(at..., std::abs(operand->get(at...))); });
  return x;
}

/// Sums of blocks of 128 pass as promoted ones, and by no rule for f32. At most eight times as much is granted as is
/// lost: twice and three deviations, of which no element has all.
TEST(Judge, PromotedSums) {
  for (const bool one_sign : {false, true}) {
    for (const std::int64_t k : {33, 128, 1000, 4096}) {
      SCOPED_TRACE(::testing::Message() << "k " << k << (one_sign ? ", of one sign" : ""));
      GemmInstance x = instance(k, one_sign);
      const judge::GemmReference reference(x.problem, x.operands());
      run_on_model(&x, 128);
      const judge::ErrorReport report = reference.check(x.d.view(), Sums::promoted);
      EXPECT_TRUE(report.passed()) << report.why;
      EXPECT_FALSE(reference.check(x.d.view(), Sums::f32).passed());
      EXPECT_LE(report.limit(), 8 * report.error);
    }
  }
}

/// Sums that stay with the tensor cores for all of k do not.
TEST(Judge, SumsThatAreNotPromoted) {
  GemmInstance x = instance(4096, true);
  const judge::GemmReference reference(x.problem, x.operands());
  run_on_model(&x, 4096);
  EXPECT_FALSE(reference.check(x.d.view(), Sums::promoted).passed());
}

/// The sum 240 * 240 - 240 * 240 + 2^-9 * 2^-9 is above 0, but its last product is cut off. With an infinite scale its
/// element is NaN then, and not Inf. Where a sum is far from 0 only Inf passes, and NaN
/// where it is 0.
TEST(Judge, AnInfiniteScaleOfASumThatIsCutOff) {
  GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 1, 3, 3}.scaling(Scaling::tensor).d_f32(), DType::e4m3, 1);
  constexpr float kLeast = 0x1p-9F, kInf = std::numeric_limits<float>::infinity();
  for (const auto& [k, a, of_first, of_second] :
       {std::tuple{0, 240.F, 240.F, 240.F}, {1, 240.F, -240.F, 1.F}, {2, kLeast, kLeast, kLeast}}) {
    x.a.set(0, 0, 0, k, a);
    x.b.set(0, 0, 0, k, of_first);
    x.b.set(0, 1, 0, k, of_second);
    x.b.set(0, 2, 0, k, 0);
  }
  x.scale_a.set(0, 0, 0, 0, 1);
  x.scale_b.set(0, 0, 0, 0, kInf);
  const judge::GemmReference reference(x.problem, x.operands());
  x.d.set(0, 0, 0, 0, std::numeric_limits<float>::quiet_NaN());
  x.d.set(0, 0, 0, 1, kInf);
  x.d.set(0, 0, 0, 2, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(reference.check(x.d.view(), Sums::promoted).passed()) << reference.check(x.d.view(), Sums::promoted).why;
  EXPECT_FALSE(reference.check(x.d.view(), Sums::f32).passed());
  x.d.set(0, 0, 0, 1, -kInf);
  EXPECT_FALSE(reference.check(x.d.view(), Sums::promoted).passed());
  x.d.set(0, 0, 0, 1, kInf);
  x.d.set(0, 0, 0, 2, kInf);  // of a sum of zeros nothing is cut off
  EXPECT_FALSE(reference.check(x.d.view(), Sums::promoted).passed());
}

/// GELU of -14.3 is so small that its factor of x has lost its last bits: 8 units of the least number more or less
/// pass.
TEST(Judge, AnActivationBelowTheNormalNumbers) {
  GemmInstance x =
      make_gemm_instance(GemmCase{"x", 1, 1, 1, 1}.activation(Activation::gelu_erf).d_f32(), DType::f32, 1);
  x.a.set(0, 0, 0, 0, 1);
  x.b.set(0, 0, 0, 0, -13.95F);
  const judge::GemmReference reference(x.problem, x.operands());
  const float right = *static_cast<const float*>(reference.exact().data);
  ASSERT_TRUE(right < 0 && right > -0x1p-126F) << right;
  x.d.set(0, 0, 0, 0, right - 8 * 0x1p-149F);
  EXPECT_TRUE(reference.check(x.d.view()).passed()) << reference.check(x.d.view()).why;
  x.d.set(0, 0, 0, 0, right - 2000 * 0x1p-149F);
  EXPECT_FALSE(reference.check(x.d.view()).passed());
}

}  // namespace
}  // namespace falchion::testing
