// tests/gemm_contract_test.cpp: the edge cases of a GEMM (docs/contract.md, "GEMM").
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/gemm.hpp"

namespace falchion::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

void fill(HostTensor* x, float value) {
  x->for_each([&](auto... at) { x->set(at..., value); });
}

void run_and_match(const Path& path, const GemmInstance& x, const GemmInstance& fresh) {
  const Status status = run(path.target(), x);
  ASSERT_TRUE(status) << status.why;
  EXPECT_TRUE(matches(x, fresh));
}

TEST(GemmContract, WithoutKTheOtherTermsStay) {
  on_every_path(
      [](const Path& path, DType dtype) {
        GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 5, 40, 0}.beta(2).residual(), dtype);
        fill(&x.c, 3);
        fill(&x.residual, 0.5F);
        ASSERT_TRUE(run(path.target(), x));
        x.d.for_each([&](auto... at) { ASSERT_EQ(x.d.get(at...), 6.5F); });
      },
      kGemm);
}

/// beta = 0: a c may be given, and its NaN stays out. alpha = 0: the product is not formed.
TEST(GemmContract, AFactorOfZeroReadsNothing) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t m : {4, 40}) {
          GemmInstance x = make_gemm_instance(GemmCase{"x", 1, m, 40, 70}, dtype);
          x.c = x.d.like();
          fill(&x.c, kNan);
          run_and_match(path, x, x);
          GemmInstance y = make_gemm_instance(GemmCase{"x", 1, m, 40, 70}.alpha(0).beta(1), dtype);
          fill(&y.a, kNan);
          fill(&y.b, kInf);
          run_and_match(path, y, y);
          y.d.for_each([&](auto... at) { ASSERT_EQ(y.d.get(at...), y.c.get(at...)); });
        }
      },
      kGemm);
}

/// A NaN or Inf of a reaches its row, one of b its column, and nothing else: the tails of tiles hold zeros, and rows
/// beside the matrix are not read.
TEST(GemmContract, NanStaysInItsRowAndColumn) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t m : {7, 45}) {
          for (const float bad : {kNan, kInf}) {
            GemmInstance x = make_gemm_instance(GemmCase{"x", 1, m, 37, 75}, dtype);
            x.a.set(0, 5, 0, 74, bad);
            x.b.set(0, 36, 0, 0, bad);
            ASSERT_TRUE(run(path.target(), x));
            x.d.for_each([&](auto b, auto i, auto k, auto j) {
              ASSERT_EQ(std::isfinite(x.d.get(b, i, k, j)), i != 5 && j != 36) << i << ", " << j;
            });
            EXPECT_TRUE(matches(x, x));
          }
        }
      },
      kGemm);
}

TEST(GemmContract, ActivationsKeepNan) {
  on_every_path(
      [](const Path& path, DType dtype) {
        using enum Activation;
        for (const Activation activation : {relu, gelu_tanh, gelu_erf, silu, swiglu}) {
          GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 20, 40, 30}.activation(activation), dtype);
          x.a.set(0, 3, 0, 3, kNan);
          ASSERT_TRUE(run(path.target(), x));
          for (std::int64_t j = 0; j < 40; ++j) ASSERT_TRUE(std::isnan(x.d.get(0, 3, 0, j))) << name(activation);
        }
      },
      kGemm);
}

/// Far from 0 an activation is 0 or the identity, and near 0 it keeps the digits of f32.
TEST(GemmContract, ActivationsOfAnySize) {
  on_every_path(
      [](const Path& path, DType dtype) {
        using enum Activation;
        if (dtype != DType::f32) return;
        for (const Activation activation : {relu, gelu_tanh, gelu_erf, silu}) {
          GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 1, 40, 1}.activation(activation), DType::f32);
          const float sizes[] = {1e-20F, 1e-3F, 0.5F, 1, 2, 3, 5, 9, 20, 85, 100, 1e4F, 1e15F};
          x.a.set(0, 0, 0, 0, 1);
          std::int64_t j = 0;
          for (const float size : sizes)
            for (const float z : {size, -size}) x.b.set(0, j++, 0, 0, z);
          for (; j < 40; ++j) x.b.set(0, j, 0, 0, 0);
          ASSERT_TRUE(run(path.target(), x));
          for (j = 0; j < 40; ++j) {  // each by itself, because the largest would hide the others
            GemmInstance one = make_gemm_instance(GemmCase{"x", 1, 1, 1, 1}.activation(activation), DType::f32);
            one.a.set(0, 0, 0, 0, 1);
            one.b.set(0, 0, 0, 0, x.b.get(0, j, 0, 0));
            one.d.set(0, 0, 0, 0, x.d.get(0, 0, 0, j));
            EXPECT_TRUE(matches(one, one)) << name(activation) << " of " << x.b.get(0, j, 0, 0);
          }
        }
      },
      kGemm);
}

TEST(GemmContract, SumsAreF32) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (dtype == DType::f32) return;
        GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 20, 33, 4096}.d_f32(), dtype);
        fill(&x.a, 1);
        fill(&x.b, 1);
        ASSERT_TRUE(run(path.target(), x));
        x.d.for_each([&](auto... at) { ASSERT_EQ(x.d.get(at...), 4096.F); });
      },
      kGemm);
}

Status run_over(const Path& path, GemmInstance x, const Tensor& d) {
  Plan plan;
  if (Status status = Plan::make(x.problem, path.target(), &plan); !status) return status;
  const Workspace workspace(plan.workspace_bytes());
  GemmOperands operands = x.operands();
  operands.d = d;
  return plan.run(operands, workspace.data(), workspace.size());
}

/// d may be the very view c or residual; a shifted one, or a or b, is refused.
TEST(GemmContract, DOverItsInputs) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 20, 20, 20}.beta(1).residual(), dtype);
        EXPECT_EQ(run_over(path, x, x.a.view()).why, "d overlaps a");
        EXPECT_EQ(run_over(path, x, x.b.view()).why, "d overlaps b");
        Tensor turned = x.c.view();
        std::swap(turned.stride[1], turned.stride[3]);
        EXPECT_EQ(run_over(path, x, turned).why, "d overlaps c");
        EXPECT_EQ(run_over(path, x, x.residual.view()).why, "");
        EXPECT_EQ(run_over(path, x, x.c.view()).why, "");
      },
      kGemm);
}

}  // namespace
}  // namespace falchion::testing
