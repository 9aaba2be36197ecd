// tests/gemm_contract_test.cpp: the edge cases of a GEMM (docs/contract.md, "GEMM").
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ref/gemm.hpp"
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

/// Inf stays; -Inf gives 0 with relu, and NaN, as -Inf times 0, with the others.
TEST(GemmContract, ActivationsOfInfinities) {
  on_every_path(
      [](const Path& path, DType dtype) {
        using enum Activation;
        for (const Activation activation : {relu, gelu_tanh, gelu_erf, silu}) {
          GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 20, 40, 1}.activation(activation), dtype);
          fill(&x.b, 1);
          x.a.set(0, 3, 0, 0, kInf);
          x.a.set(0, 4, 0, 0, -kInf);
          ASSERT_TRUE(run(path.target(), x));
          for (std::int64_t j = 0; j < 40; ++j) {
            ASSERT_EQ(x.d.get(0, 3, 0, j), kInf) << name(activation);
            const float of_minus = x.d.get(0, 4, 0, j);
            ASSERT_TRUE(activation == relu ? of_minus == 0 : std::isnan(of_minus)) << name(activation) << of_minus;
          }
        }
      },
      kGemm);
}

/// Of any number down to a result of 2^-119 an activation is right to 2^-21 of itself; below, it may be 0.
TEST(GemmContract, ActivationsOfAnySize) {
  constexpr std::int64_t kNumbers = 3000;
  using enum Activation;
  for (const Activation activation : {relu, gelu_tanh, gelu_erf, silu}) {
    GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 1, kNumbers, 1}.activation(activation), DType::f32);
    fill(&x.a, 1);
    const float sizes[] = {0, 1e-30F, 1e-20F, 1e-3F, 100, 1e4F, 1e15F, 3e38F};
    std::int64_t numbers = 0;
    for (const float size : sizes)
      for (const float z : {size, -size}) x.b.set(0, numbers++, 0, 0, z);
    for (std::int64_t j = numbers; j < kNumbers; ++j) {
      const float place = static_cast<float>(j - numbers) / static_cast<float>(kNumbers - numbers);
      x.b.set(0, j, 0, 0, j % 3 == 0 ? 10 - 100 * place : 14 - 28 * place);
    }
    on_every_path(
        [&](const Path& path, DType dtype) {
          if (dtype != DType::f32) return;
          ASSERT_TRUE(run(path.target(), x));
          for (std::int64_t j = 0; j < kNumbers; ++j) {
            const double z = x.b.get(0, j, 0, 0), right = ref::activated(activation, z), got = x.d.get(0, 0, 0, j);
            const double by = std::max(0x1p-21 * std::abs(right), 0x1p-119);
            ASSERT_LE(std::abs(got - right), by) << name(activation) << " of " << z << " is " << got;
          }
        },
        kGemm);
  }
}

/// In f16 and bf16 an activation is right to 2^-16 of itself before it is rounded. The numbers before and after a NaN
/// or an infinity are not touched by it, though two numbers share a division on Hopper.
TEST(GemmContract, ActivationsInSixteenBits) {
  constexpr std::int64_t kRows = 80, kNumbers = 1024, kDepth = 8;  // more than few rows, in runs of 16 bytes
  using enum Activation;
  for (const Activation activation : {relu, gelu_tanh, gelu_erf, silu}) {
    on_every_path(
        [&](const Path& path, DType dtype) {
          if (dtype == DType::f32) return;
          GemmInstance x = make_gemm_instance(GemmCase{"x", 1, kRows, kNumbers, kDepth}.activation(activation), dtype);
          fill(&x.a, 0);
          fill(&x.b, 0);
          for (std::int64_t i = 0; i < kRows; ++i) x.a.set(0, i, 0, 0, 1);
          for (std::int64_t j = 0; j < kNumbers; ++j) {
            const float place = static_cast<float>(j) / kNumbers;
            const float special = j % 3 == 0 ? kNan : j % 3 == 1 ? kInf : -kInf;
            x.b.set(0, j, 0, 0, j % 7 == 3 ? special : 12 - 26 * place);
          }
          ASSERT_TRUE(run(path.target(), x));
          const double half_unit = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
          for (std::int64_t j = 0; j < kNumbers; ++j) {
            const double z = x.b.get(0, j, 0, 0), got = x.d.get(0, 77, 0, j);
            if (!std::isfinite(z)) {
              const bool nan = std::isnan(z) || (z < 0 && activation != relu);
              ASSERT_TRUE(nan ? std::isnan(got) : got == std::max(z, 0.0))
                  << name(activation) << " of " << z << " is " << got;
              continue;
            }
            const double right = ref::activated(activation, z);
            const double by =
                std::max((half_unit + 0x1p-16) * std::abs(right), dtype == DType::f16 ? 0x1p-24 : 0x1p-119);
            ASSERT_LE(std::abs(got - right), by) << name(activation) << " of " << z << " is " << got;
          }
        },
        kGemm);
  }
}

/// bf16 data below 2^-126, which neither tiles of AMX nor vdpbf16ps keep, counts as itself or as 0; what is not smaller
/// counts everywhere.
TEST(GemmContract, TinyBf16) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (dtype != DType::bf16) return;
        GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 40, 40, 33}.d_f32(), dtype);
        fill(&x.a, 0);
        fill(&x.b, 0x1p100F);
        x.a.set(0, 3, 0, 32, 0x1p-126F);
        x.a.set(0, 4, 0, 32, 0x1p-128F);
        ASSERT_TRUE(run(path.target(), x));
        for (std::int64_t j = 0; j < 40; ++j) {
          ASSERT_EQ(x.d.get(0, 3, 0, j), 0x1p-26F);
          const float tiny = x.d.get(0, 4, 0, j);
          const bool may_flush = path.level.starts_with("amx") || path.level == "avx512_bf16";
          ASSERT_TRUE(tiny == 0x1p-28F || (tiny == 0 && may_flush)) << tiny;
          ASSERT_EQ(x.d.get(0, 5, 0, j), 0);
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

}  // namespace
}  // namespace falchion::testing
