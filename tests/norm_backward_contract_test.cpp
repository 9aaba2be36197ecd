// tests/norm_backward_contract_test.cpp: the edge cases of gradients of norms (docs/contract.md, "Norm: gradients").
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>

#include "support/norm_backward.hpp"

namespace falchion::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

/// Lengths of rows: single numbers, one chunk, rows of several warps, and read again for each pass.
constexpr std::int64_t kRows[] = {37, 64, 4096, 16400};

template <class F>
void on_every_path_and_row(const F& f) {
  on_every_path(
      [&](const Path& path, DType dtype) {
        for (const std::int64_t d : kRows) f(path, dtype, d);
      },
      kNormBackward);
}

/// The definition in numbers that every type holds exactly. x is (2, 6): mean 4, variance 4, mean square 20. grad_y is
/// (1, 3), the factors are (2, 4), so g is (2, 12).
TEST(NormBackwardContract, TwoNumbersByHand) {
  struct Row {
    NormKind kind;
    float eps;
    bool zero_centered;
    float grad_x[2], grad_weight[2];
  };
  constexpr Row rows[] = {// rstd 1 / 4, z (-1/2, 1/2), mean g 7, mean of g z 5/2: g - 7 - z 5/2 is (-15/4, 15/4)
                          {NormKind::layer, 12, false, {-0.9375F, 0.9375F}, {-0.5F, 1.5F}},
                          {NormKind::layer, 12, true, {-0.9375F, 0.9375F}, {-0.5F, 1.5F}},
                          // rstd 1 / 8, z (1/4, 3/4), mean of g z 19/4: g - z 19/4 is (13/16, 135/16)
                          {NormKind::rms, 44, false, {0.1015625F, 1.0546875F}, {0.25F, 2.25F}}};
  on_every_path(
      [&](const Path& path, DType dtype) {
        for (const Row& row : rows) {
          NormGradients x = make_norm_gradients({"x",
                                                 1,
                                                 1,
                                                 1,
                                                 2,
                                                 {.dtype_residual = DType::f32,
                                                  .kind = row.kind,
                                                  .eps = row.eps,
                                                  .zero_centered = row.zero_centered,
                                                  .weight = true,
                                                  .bias = true,
                                                  .residual_out = true}},
                                                dtype);
          const auto set = [](HostTensor* tensor, float first, float second) {
            tensor->set(0, 0, 0, 0, first);
            tensor->set(0, 0, 0, 1, second);
          };
          const float less = row.zero_centered ? 1 : 0;
          set(&x.x, 2, 6);
          set(&x.grad_y, 1, 3);
          set(&x.weight, 2 - less, 4 - less);
          set(&x.grad_residual_out, 0, 0);
          ASSERT_TRUE(run(path.target(), x));
          const float unit = dtype == DType::bf16 ? 0.004F : 1e-6F;
          for (const std::int64_t j : {0, 1}) {
            EXPECT_NEAR(x.grad_x.get(0, 0, 0, j), row.grad_x[j], unit) << name(row.kind);
            EXPECT_EQ(x.grad_weight.get(0, 0, 0, j), row.grad_weight[j]);
            EXPECT_EQ(x.grad_bias.get(0, 0, 0, j), j == 0 ? 1 : 3);
          }
          set(&x.grad_residual_out, 16, -16);  // it is added
          ASSERT_TRUE(run(path.target(), x));
          for (const std::int64_t j : {0, 1})
            EXPECT_NEAR(x.grad_x.get(0, 0, 0, j), row.grad_x[j] + (j == 0 ? 16 : -16),
                        dtype == DType::f32 ? 1e-5 : 0.13);
        }
      },
      kNormBackward);
}

/// What is summed over no rows is 0.
TEST(NormBackwardContract, WithoutRowsSumsAreZero) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t d : kRows) {
          const NormGradients x = make_norm_gradients(
              {"x", 2, 0, 3, d, {.weight = true, .bias = true}, Layout::dense, {2, 1, 3}, {1, 1, 3}}, dtype);
          ASSERT_TRUE(run(path.target(), x));
          x.grad_weight.for_each([&](auto... at) { ASSERT_EQ(x.grad_weight.get(at...), 0); });
          x.grad_bias.for_each([&](auto... at) { ASSERT_EQ(x.grad_bias.get(at...), 0); });
        }
      },
      kNormBackward);
}

/// A NaN or Inf in x makes its row of grad_x NaN and no other; grad_weight sums it, grad_bias does not see it.
TEST(NormBackwardContract, NanAndInfStayInTheirRow) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      for (const float bad : {kNan, kInf, -kInf}) {
        for (const std::int64_t place : {std::int64_t{0}, d - 1}) {
          NormGradients x = make_norm_gradients({"x", 1, 6, 1, d, {.kind = kind, .weight = true, .bias = true}}, dtype);
          x.x.set(0, 2, 0, place, bad);
          ASSERT_TRUE(run(path.target(), x));
          EXPECT_TRUE(matches(x, x));
          EXPECT_TRUE(std::isnan(x.grad_weight.get(0, 0, 0, place)));
          for (std::int64_t j = 0; j < d; ++j) {
            ASSERT_TRUE(std::isnan(x.grad_x.get(0, 2, 0, j)));
            ASSERT_TRUE(std::isfinite(x.grad_x.get(0, 1, 0, j)) && std::isfinite(x.grad_x.get(0, 3, 0, j)));
            ASSERT_TRUE(std::isfinite(x.grad_bias.get(0, 0, 0, j)));
          }
        }
      }
    }
  });
}

/// A row of equal numbers has z = 0, so it adds nothing to grad_weight, and grad_x is g less its mean, times
/// 1 / sqrt(eps). With eps = 0 it is 0 / 0.
TEST(NormBackwardContract, ARowOfEqualNumbers) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    for (const float value : {0.1F, -1234.5F, 0.F, 1e38F, 1e-30F}) {
      if (value > 1e30F && dtype == DType::f16) continue;
      for (const float eps : {1e-4F, 0.F}) {
        NormGradients x = make_norm_gradients({"x", 1, 1, 1, d, {.eps = eps, .weight = true}}, dtype);
        for (std::int64_t j = 0; j < d; ++j) x.x.set(0, 0, 0, j, value);
        ASSERT_TRUE(run(path.target(), x));
        EXPECT_TRUE(matches(x, x));
        for (std::int64_t j = 0; j < d; ++j) {
          ASSERT_EQ(std::isnan(x.grad_x.get(0, 0, 0, j)), eps == 0);
          if (eps > 0) { ASSERT_EQ(x.grad_weight.get(0, 0, 0, j), 0); }
        }
      }
    }
  });
}

/// A mean of 10000 beside a deviation of 1: the mean's own rounding, 2^-11, does not reach the gradients.
TEST(NormBackwardContract, ALargeMean) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (dtype != DType::f32) return;
        for (const std::int64_t d : kRows) {
          NormGradients x = make_norm_gradients({"x", 1, 4, 1, d, {.eps = 0, .weight = true}}, dtype);
          x.x.for_each([&](auto... at) { x.x.set(at..., x.x.get(at...) + 10000); });
          ASSERT_TRUE(run(path.target(), x));
          EXPECT_TRUE(matches(x, x));
        }
      },
      kNormBackward);
}

/// Rows of numbers whose squares lose bits in f32, are 0 there, or overflow, and between them rows of size 1, whose
/// bits they do not change. A gradient that is past f32 is Inf.
TEST(NormBackwardContract, RowsOfTinyAndOfHugeNumbers) {
  constexpr float kTiny[] = {1e-17F, 1e-21F, 1e-23F, 1e-30F, 1e-41F}, kHuge[] = {1e17F, 1e19F, 1e28F, 1e37F, 1};
  on_every_path_and_row([&](const Path& path, DType dtype, std::int64_t d) {
    if (dtype == DType::f16) return;
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      for (const float eps : {0.F, 1e-38F, 1e-5F}) {
        if (d > 64 && eps > 0) continue;
        for (const std::span<const float> sizes : {std::span<const float>(kTiny), std::span<const float>(kHuge)}) {
          SCOPED_TRACE(text(name(kind), ", eps ", eps, ", sizes from ", sizes[0]));
          const NormGradients alone =
              make_norm_gradients({"x", 1, 10, 1, d, {.kind = kind, .eps = eps, .weight = true}}, dtype);
          NormGradients x = copy_of(alone);
          x.grad_x = alone.grad_x.like();
          x.grad_x.fill_poison();
          x.x.for_each([&](auto b, auto s, auto h, auto j) {
            if (s % 2 == 0) x.x.set(b, s, h, j, x.x.get(b, s, h, j) * sizes[static_cast<std::size_t>(s / 2)]);
          });
          ASSERT_TRUE(run(path.target(), alone));
          ASSERT_TRUE(run(path.target(), x));
          EXPECT_TRUE(matches(x, x));
          for (std::int64_t row = 1; row < 10; row += 2)
            for (std::int64_t j = 0; j < d; ++j) ASSERT_EQ(x.grad_x.get(0, row, 0, j), alone.grad_x.get(0, row, 0, j));
        }
      }
    }
  });
}

/// An Inf of grad_residual_out comes out, though what it is added to is a number past f32, of either sign.
TEST(NormBackwardContract, InfBesideAGradientPastF32) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    if (dtype == DType::f16) return;
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      NormGradients x =
          make_norm_gradients({"x", 1, 4, 1, d, {.kind = kind, .eps = 0, .weight = true, .residual_out = true}}, dtype);
      x.x.for_each([&](auto... at) { x.x.set(at..., x.x.get(at...) * 1e-39F); });
      for (std::int64_t j = 0; j < d; ++j) x.grad_residual_out.set(0, 2, 0, j, j % 4 < 2 ? kInf : -kInf);
      ASSERT_TRUE(run(path.target(), x));
      EXPECT_TRUE(matches(x, x));
      for (std::int64_t j = 0; j < d; ++j) ASSERT_EQ(x.grad_x.get(0, 2, 0, j), j % 4 < 2 ? kInf : -kInf) << j;
    }
  });
}

/// Many rows: one sum in f32 after the other would be off by 54 here.
TEST(NormBackwardContract, SumsOfManyRows) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (path.backend == Backend::ref || dtype != DType::f32) return;
        NormGradients x = make_norm_gradients({"x", 1, 70000, 1, 8, {.weight = true, .bias = true}}, dtype);
        x.grad_y.for_each([&](auto... at) { x.grad_y.set(at..., 1.1F); });
        ASSERT_TRUE(run(path.target(), x));
        for (std::int64_t j = 0; j < 8; ++j) EXPECT_NEAR(x.grad_bias.get(0, 0, 0, j), 70000 * double{1.1F}, 0.3) << j;
      },
      kNormBackward);
}

}  // namespace
}  // namespace falchion::testing
