// tests/norm_contract_test.cpp: the edge cases of a norm (docs/contract.md, "Norm").
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>

#include "support/norm.hpp"

namespace falchion::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

/// Lengths of rows: single numbers, one chunk, two chunks a thread, and read again for each pass.
constexpr std::int64_t kRows[] = {37, 64, 1024, 16400};

void fill_row(HostTensor* x, std::int64_t row, float value) {
  for (std::int64_t j = 0; j < x->shape()[3]; ++j) x->set(0, row, 0, j, value);
}

template <class F>
void on_every_path_and_row(const F& f) {
  on_every_path(
      [&](const Path& path, DType dtype) {
        for (const std::int64_t d : kRows) f(path, dtype, d);
      },
      kNorm);
}

/// Without d there is nothing to average: mean and rstd are 0 / 0.
TEST(NormContract, WithoutDStatisticsAreNan) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const NormInstance x = make_norm_instance({"x", 1, 5, 1, 0, {.mean = true, .rstd = true}}, dtype);
        ASSERT_TRUE(run(path.target(), x));
        for (std::int64_t i = 0; i < 5; ++i)
          EXPECT_TRUE(std::isnan(x.mean.get(0, i, 0, 0)) && std::isnan(x.rstd.get(0, i, 0, 0)));
      },
      kNorm);
}

/// The definition in numbers that every type holds exactly: v is (2, 6), whose mean is 4, variance 4 and mean
/// square 20.
TEST(NormContract, TwoNumbersByHand) {
  struct Row {
    NormKind kind;
    float eps;
    bool zero_centered;
    float y[2];
  };
  constexpr Row rows[] = {{NormKind::layer, 12, false, {0, 0.5F}},  // rstd 1 / 4, v - mean (-2, 2)
                          {NormKind::layer, 12, true, {-0.5F, 1}},
                          {NormKind::rms, 44, false, {1.5F, 1.25F}},  // rstd 1 / 8
                          {NormKind::rms, 44, true, {1.75F, 2}}};
  on_every_path(
      [&](const Path& path, DType dtype) {
        for (const Row& row : rows) {
          const bool layer = row.kind == NormKind::layer;
          NormInstance x = make_norm_instance({"x",
                                               1,
                                               1,
                                               1,
                                               2,
                                               {.kind = row.kind,
                                                .eps = row.eps,
                                                .zero_centered = row.zero_centered,
                                                .weight = true,
                                                .bias = true,
                                                .residual = true,
                                                .residual_out = true,
                                                .mean = layer,
                                                .rstd = true}},
                                              dtype);
          const auto set = [](HostTensor* tensor, float first, float second) {
            tensor->set(0, 0, 0, 0, first);
            tensor->set(0, 0, 0, 1, second);
          };
          set(&x.x, -1, 4);
          set(&x.residual, 3, 2);
          set(&x.weight, 2, 3);
          set(&x.bias, 1, -1);
          ASSERT_TRUE(run(path.target(), x));
          for (const std::int64_t j : {0, 1}) {
            EXPECT_EQ(x.y.get(0, 0, 0, j), row.y[j]) << name(row.kind) << ", zero_centered " << row.zero_centered;
            EXPECT_EQ(x.residual_out.get(0, 0, 0, j), j == 0 ? 2 : 6);
          }
          EXPECT_EQ(x.rstd.get(0, 0, 0, 0), layer ? 0.25F : 0.125F);
          if (layer) { EXPECT_EQ(x.mean.get(0, 0, 0, 0), 4); }
        }
      },
      kNorm);
}

TEST(NormContract, NanAndInfStayInTheirRow) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      const Norm terms{.kind = kind, .weight = true, .mean = kind == NormKind::layer, .rstd = true};
      for (const float bad : {kNan, kInf, -kInf}) {
        for (const std::int64_t place : {std::int64_t{0}, d - 1}) {
          NormInstance x = make_norm_instance({"x", 1, 6, 1, d, terms}, dtype);
          x.x.set(0, 2, 0, place, bad);
          ASSERT_TRUE(run(path.target(), x));
          EXPECT_TRUE(matches(x, x));
          for (std::int64_t j = 0; j < d; ++j) {
            const bool zero = kind == NormKind::rms && std::isinf(bad) && j != place;  // a number over an infinite rstd
            ASSERT_EQ(std::isnan(x.y.get(0, 2, 0, j)), !zero);
            ASSERT_TRUE(std::isfinite(x.y.get(0, 1, 0, j)) && std::isfinite(x.y.get(0, 3, 0, j)));
          }
        }
      }
    }
  });
}

/// A row of equal numbers has a variance of exactly 0: its y is the bias, and with eps = 0 it is 0 / 0. The sum of such
/// a row of 1e38 is past f32, and the squares of one of 1e-30 are below it.
TEST(NormContract, ARowOfEqualNumbers) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    for (const float value : {0.1F, -1234.5F, 0.F, 1e38F, 1e-30F}) {
      if (value > 1e30F && dtype == DType::f16) continue;
      for (const float eps : {1e-5F, 0.F}) {
        NormInstance x = make_norm_instance(
            {"x", 1, 3, 1, d, {.eps = eps, .weight = true, .bias = true, .mean = true, .rstd = true}}, dtype);
        fill_row(&x.x, 1, value);
        ASSERT_TRUE(run(path.target(), x));
        EXPECT_TRUE(matches(x, x));
        EXPECT_EQ(x.mean.get(0, 1, 0, 0), x.x.get(0, 1, 0, 0));
        if (eps == 0) {
          EXPECT_EQ(x.rstd.get(0, 1, 0, 0), kInf);
        } else {
          EXPECT_NEAR(x.rstd.get(0, 1, 0, 0), 316.22775, 1e-4);
        }
        for (std::int64_t j = 0; j < d; ++j) {
          const float y = x.y.get(0, 1, 0, j);
          ASSERT_TRUE(eps == 0 ? std::isnan(y) : y == x.bias.get(0, 0, 0, j)) << j << ": " << y;
        }
      }
    }
  });
}

/// A mean of 10000 beside a deviation of 1: the mean's own rounding, 2^-11, does not reach y.
TEST(NormContract, ALargeMean) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (dtype != DType::f32) return;
        for (const std::int64_t d : kRows) {
          NormInstance x = make_norm_instance({"x", 1, 4, 1, d, {.eps = 0, .mean = true, .rstd = true}}, dtype);
          x.x.for_each([&](auto... at) { x.x.set(at..., x.x.get(at...) + 10000); });
          ASSERT_TRUE(run(path.target(), x));
          for (std::int64_t i = 0; i < 4; ++i) {
            double mean = 0, variance = 0;
            for (std::int64_t j = 0; j < d; ++j) mean += x.x.get(0, i, 0, j);
            mean /= static_cast<double>(d);
            for (std::int64_t j = 0; j < d; ++j) variance += std::pow(x.x.get(0, i, 0, j) - mean, 2);
            const double rstd = 1 / std::sqrt(variance / static_cast<double>(d));
            EXPECT_NEAR(x.mean.get(0, i, 0, 0), mean, 6e-4);
            EXPECT_NEAR(x.rstd.get(0, i, 0, 0), rstd, 2e-6 * rstd);
            for (std::int64_t j = 0; j < d; ++j)
              ASSERT_NEAR(x.y.get(0, i, 0, j), (x.x.get(0, i, 0, j) - mean) * rstd, 1e-5) << "d " << d << ", " << j;
          }
        }
      },
      kNorm);
}

/// Numbers 2^24 and 2^24 + 2 in turn: f32 has no number between them, so their mean is rounded by as much as they
/// deviate from it. That must reach neither the variance nor y.
TEST(NormContract, AMeanBetweenNumbersOfF32) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (dtype != DType::f32) return;
        for (const std::int64_t d : kRows) {
          NormInstance x = make_norm_instance({"x", 1, 3, 1, d, {.eps = 0, .rstd = true}}, dtype);
          x.x.for_each([&](auto b, auto s, auto h, auto j) { x.x.set(b, s, h, j, 16777216.F + 2.F * (j % 2)); });
          ASSERT_TRUE(run(path.target(), x));
          const double share = static_cast<double>(d / 2) / static_cast<double>(d);  // of the larger number
          const double rstd = 1 / std::sqrt(4 * share * (1 - share));
          for (std::int64_t i = 0; i < 3; ++i) {
            EXPECT_NEAR(x.rstd.get(0, i, 0, 0), rstd, 1e-3) << d;
            for (std::int64_t j = 0; j < d; ++j)
              ASSERT_NEAR(x.y.get(0, i, 0, j), 2 * (static_cast<double>(j % 2) - share) * rstd, 1e-3) << d << ", " << j;
          }
        }
      },
      kNorm);
}

/// Sizes of numbers whose squares lose bits in f32, are 0 there, or are denormal themselves; and of those that
/// overflow.
constexpr float kTiny[] = {1e-17F, 1e-21F, 1e-23F, 1e-30F, 1e-41F};
constexpr float kHuge[] = {1e17F, 1e19F, 1e28F, 1e37F};

/// Rows of random numbers of each of these sizes and, between them, of size 1. In f16 the residual, which is f32, has
/// them alone, so that v is of that size there too.
NormInstance rows_of_sizes(const Norm& terms, DType dtype, std::int64_t d, std::span<const float> sizes) {
  Norm n = terms;
  n.residual = n.residual_out = n.residual || dtype == DType::f16;
  if (dtype == DType::f16) n.dtype_y = n.dtype_residual = DType::f32;
  NormInstance x = make_norm_instance({"x", 1, 2 * static_cast<std::int64_t>(sizes.size()), 1, d, n}, dtype);
  const auto multiply = [&](HostTensor* tensor, float factor) {
    tensor->for_each([&](auto b, auto s, auto h, auto j) {
      const float size = s % 2 == 0 ? sizes[static_cast<std::size_t>(s / 2)] : 1;
      tensor->set(b, s, h, j, tensor->get(b, s, h, j) * size * factor);
    });
  };
  multiply(&x.x, dtype == DType::f16 ? 0.F : 1.F);
  if (n.residual) multiply(&x.residual, 1);
  return x;
}

/// The numbers of a row of any size count: y, the mean and rstd are the definition's, and residual_out is the sum. An
/// rstd that is past f32 is Inf, and y is still right. The bits of a row are its own, whatever rows are beside it.
TEST(NormContract, RowsOfTinyAndOfHugeNumbers) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      for (const bool residual : {false, true}) {
        for (const float eps : {0.F, 1e-45F, 1e-38F, 1e-5F}) {
          if (d > 64 && (eps > 0 || !residual)) continue;
          for (const std::span<const float> sizes : {std::span<const float>(kTiny), std::span<const float>(kHuge)}) {
            const Norm terms{.kind = kind,
                             .eps = eps,
                             .weight = true,
                             .bias = eps == 0,
                             .residual = residual,
                             .mean = kind == NormKind::layer,
                             .rstd = true};
            SCOPED_TRACE(text(name(kind), ", eps ", eps, residual ? ", residual" : "", ", sizes from ", sizes[0]));
            const NormInstance x = rows_of_sizes(terms, dtype, d, sizes);
            ASSERT_TRUE(run(path.target(), x));
            EXPECT_TRUE(matches(x, x));
          }
        }
      }
    }
  });
}

/// What a user sees first: rows of one number have a root mean square of that number. Of the sizes at which rstd is in
/// the range of f32 it is right too.
TEST(NormContract, RmsOfOneTinyNumber) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    if (dtype == DType::f16) return;
    for (const float value : {1e-18F, 1e-20F, 1e-22F, 1e-23F, -1e-30F, 1e-38F, 1e-40F, 1e20F, -1e30F, 3e38F}) {
      NormInstance x = make_norm_instance({"x", 1, 3, 1, d, {.kind = NormKind::rms, .eps = 0, .rstd = true}}, dtype);
      fill_row(&x.x, 1, value);
      ASSERT_TRUE(run(path.target(), x));
      for (std::int64_t j = 0; j < d; ++j) ASSERT_NEAR(x.y.get(0, 1, 0, j), value < 0 ? -1 : 1, 1e-6) << value;
      const double rstd = 1 / std::abs(static_cast<double>(x.x.get(0, 1, 0, 0)));
      if (rstd < 3e38) {
        EXPECT_NEAR(x.rstd.get(0, 1, 0, 0) / rstd, 1, 1e-6) << value;
      } else {
        EXPECT_EQ(x.rstd.get(0, 1, 0, 0), kInf) << value;
      }
    }
  });
}

/// In place, too, the numbers are read again only as long as they are there.
TEST(NormContract, RowsOfTinyNumbersInPlace) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    if (dtype == DType::f16) return;
    for (const bool residual : {false, true}) {
      NormInstance x = rows_of_sizes({.eps = 0, .residual = residual, .rstd = true}, dtype, d, kTiny);
      const NormInstance fresh = copy_of(x);
      x.in_place = true;
      x.y = x.x;
      if (residual) x.residual_out = x.residual;
      ASSERT_TRUE(run(path.target(), x));
      EXPECT_TRUE(matches(x, fresh));
    }
  });
}

/// A row of ordinary numbers has the bits that it has alone, whatever rows are summed once more beside it.
TEST(NormContract, ATinyRowChangesNoBitsOfItsNeighbours) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      const NormInstance mixed = rows_of_sizes({.kind = kind, .eps = 0, .rstd = true}, dtype, d, kTiny);
      const float ones[std::size(kTiny)] = {1, 1, 1, 1, 1};
      const NormInstance alone = rows_of_sizes({.kind = kind, .eps = 0, .rstd = true}, dtype, d, ones);
      ASSERT_TRUE(run(path.target(), mixed));
      ASSERT_TRUE(run(path.target(), alone));
      for (std::int64_t row = 1; row < std::ssize(ones) * 2; row += 2) {
        ASSERT_EQ(mixed.rstd.get(0, row, 0, 0), alone.rstd.get(0, row, 0, 0));
        for (std::int64_t j = 0; j < d; ++j) ASSERT_EQ(mixed.y.get(0, row, 0, j), alone.y.get(0, row, 0, j));
      }
    }
  });
}

/// Where 1e38 and -1e38 take turns, distances from the first number are past f32.
TEST(NormContract, DistancesPastF32) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    if (dtype == DType::f16) return;
    NormInstance x = make_norm_instance({"x", 1, 3, 1, d, {.mean = true, .rstd = true}}, dtype);
    for (std::int64_t j = 0; j < d; ++j) x.x.set(0, 1, 0, j, j % 2 == 0 ? 3e38F : -3e38F);
    ASSERT_TRUE(run(path.target(), x));
    EXPECT_TRUE(matches(x, x));
  });
}

/// y is computed from the sum in f32, and not from what residual_out holds of it.
TEST(NormContract, TheSumIsNotRoundedBeforeItIsNormalised) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    if (dtype == DType::f32) return;
    const Norm terms{.dtype_y = DType::f32, .eps = 0, .residual = true, .residual_out = true};
    NormInstance x = make_norm_instance({"x", 1, 3, 1, d, terms}, dtype);
    x.residual.for_each([&](auto... at) { x.residual.set(at..., 1024); });  // a unit of bf16 is 8 there, of f16 1
    ASSERT_TRUE(run(path.target(), x));
    EXPECT_TRUE(matches(x, x));
    const NormInstance alone = make_norm_instance({"x", 1, 3, 1, d, {.dtype_y = DType::f32, .eps = 0}}, dtype);
    ASSERT_TRUE(run(path.target(), alone));
    x.y.for_each([&](auto... at) { ASSERT_NEAR(x.y.get(at...), alone.y.get(at...), 1e-3); });
  });
}

/// 3e38 and 3e38 are numbers of f32 and of bf16, and their sum is past both: an Inf in a row that has no other.
TEST(NormContract, ASumPastF32) {
  on_every_path_and_row([](const Path& path, DType dtype, std::int64_t d) {
    if (dtype == DType::f16) return;
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      const Norm terms{.kind = kind, .residual = true, .residual_out = true, .rstd = true};
      NormInstance x = make_norm_instance({"x", 1, 3, 1, d, terms}, dtype);
      x.x.set(0, 1, 0, d / 2, -3e38F);
      x.residual.set(0, 1, 0, d / 2, -3e38F);
      ASSERT_TRUE(run(path.target(), x));
      EXPECT_TRUE(matches(x, x));
      EXPECT_EQ(x.residual_out.get(0, 1, 0, d / 2), -kInf);
      EXPECT_TRUE(std::isnan(x.y.get(0, 1, 0, d / 2)));
      if (kind == NormKind::rms) { EXPECT_EQ(x.y.get(0, 1, 0, 0), 0); }
    }
  });
}

}  // namespace
}  // namespace falchion::testing
