// tests/gemm_scaled_test.cpp: GEMMs of 8-bit numbers, e4m3 and i8, and their scales on every path (docs/contract.md,
// "GEMM"), and the conversions of these numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/far_rows.hpp"
#include "support/gemm.hpp"

namespace falchion::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
constexpr DType k8Bit[] = {DType::e4m3, DType::i8};

/// Calls f(path, dtype) for each path that has the type.
template <class F>
void on_every_8bit_path(const F& f) {
  for (const Path& path : usable_paths(kGemm)) {
    for (const DType dtype : k8Bit) {
      if (!path.has(dtype, kGemm)) continue;
      SCOPED_TRACE(path.name() + " " + name(dtype));
      f(path, dtype);
    }
  }
}

void fill(HostTensor* x, float value) {
  x->for_each([&](auto... at) { x->set(at..., value); });
}

TEST(GemmScaled, E4m3OfEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    const auto byte = static_cast<std::uint8_t>(code);
    const float x = f32_from_e4m3(byte);
    EXPECT_EQ(std::signbit(x), code >= 128) << code;
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(x)) << code;
    } else {
      EXPECT_EQ(x, code >= 128 ? -size : size) << code;
    }
    EXPECT_EQ(e4m3_from_f32(x), byte) << code;
  }
}

/// To nearest even, over 448 saturated; neither Inf nor NaN is a number.
TEST(GemmScaled, E4m3IsRoundedToNearestEven) {
  for (int code = 0; code < 0x7E; ++code) {
    const float low = f32_from_e4m3(static_cast<std::uint8_t>(code)),
                high = f32_from_e4m3(static_cast<std::uint8_t>(code + 1)), middle = (low + high) / 2;
    EXPECT_EQ(e4m3_from_f32(std::nextafter(middle, 0.F)), code);
    EXPECT_EQ(e4m3_from_f32(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(e4m3_from_f32(-std::nextafter(middle, kInf)), 0x80 + code + 1);
  }
  EXPECT_EQ(e4m3_from_f32(1e30F), 0x7E);
  EXPECT_EQ(e4m3_from_f32(-449.F), 0xFE);
  EXPECT_EQ(e4m3_from_f32(kInf), 0x7F);
  EXPECT_EQ(e4m3_from_f32(kNan) & 0x7F, 0x7F);
  EXPECT_EQ(i8_from_f32(2.5F), 2);
  EXPECT_EQ(i8_from_f32(-3.5F), -4);
  EXPECT_EQ(i8_from_f32(200), 127);
  EXPECT_EQ(i8_from_f32(-1000), -128);
}

/// Every case that other types have, with each way of scaling in turn, and where the case does not name the type of d
/// with bf16 and f16 in turn. Of each 8-bit type six cases have all six pairs.
TEST(GemmScaled, Cases) {
  const std::vector<Path> paths = usable_paths(kGemm);
  std::uint64_t seed = 900;
  int turn = 0;
  for (const GemmCase& row : gemm_cases()) {
    SCOPED_TRACE(row.name);
    ++turn;
    for (const DType dtype : k8Bit) {
      GemmCase scaled = row;
      scaled.terms.scaling = static_cast<Scaling>(turn % 3);
      if (turn % 2 == 0 && scaled.terms.dtype_d == DType::as_q) scaled.terms.dtype_d = DType::f16;
      ++seed;
      const GemmInstance fresh = make_gemm_instance(scaled, dtype, seed);
      const judge::GemmReference reference(fresh.problem, fresh.operands());
      for (const Path& path : paths) {
        if (!path.has(dtype, kGemm)) continue;
        SCOPED_TRACE(path.name() + " " + name(dtype) + " " + name(scaled.terms.scaling));
        const GemmInstance x = make_gemm_instance(scaled, dtype, seed);
        const Status status = run(path.target(), x);
        EXPECT_TRUE(status) << status.why;
        if (status) { EXPECT_TRUE(matches(x, reference, sums_on(path))); }
      }
    }
  }
}

/// Runs it on each path that has the type, and calls check(path) after each run, which starts with a poisoned d.
template <class Check>
void run_on_every_path(GemmInstance* x, const Check& check) {
  for (const Path& path : usable_paths(kGemm)) {
    if (!path.has(x->problem.dtype, kGemm)) continue;
    SCOPED_TRACE(path.name());
    x->d.fill_poison();
    ASSERT_TRUE(run(path.target(), *x));
    check(path);
  }
}

/// Sums of i8 are exact in any layout.
TEST(GemmScaled, SumsOfI8AreExact) {
  for (const std::int64_t m : {1, 5, 40}) {
    for (const std::int64_t k : {1, 3, 63, 64, 65, 1030, 9000}) {
      for (const Layout layout : {Layout::dense, Layout::odd, Layout::transposed}) {
        if (m == 40 && k == 9000) continue;
        GemmInstance x = make_gemm_instance(GemmCase{"x", 1, m, 37, k}.d_i32().layout(layout), DType::i8);
        const judge::GemmReference reference(x.problem, x.operands());
        run_on_every_path(&x, [&](const Path&) { EXPECT_TRUE(matches(x, reference)) << "m " << m << ", k " << k; });
      }
    }
  }
}

/// The largest k, with the largest products, whose sum just fits; and with odd ones, of which f32 holds 1040 at most.
TEST(GemmScaled, LongSumsOfI8AreExact) {
  constexpr std::int64_t kMost = 131071;
  for (const std::int64_t m : {2, 20}) {
    for (const bool odd : {false, true}) {
      GemmInstance x = make_gemm_instance(GemmCase{"x", 1, m, 3, kMost}.d_i32(), DType::i8);
      const auto a_of = [&](std::int64_t k) { return odd ? static_cast<int>(127 - k % 5) : -128; };
      const int of_b = odd ? 127 : -128;
      x.a.for_each([&](auto b, auto i, auto, auto k) { x.a.set(b, i, 0, k, static_cast<float>(a_of(k))); });
      fill(&x.b, static_cast<float>(of_b));
      std::int64_t right = 0;
      for (std::int64_t k = 0; k < kMost; ++k) right += a_of(k) * of_b;
      run_on_every_path(&x, [&](const Path&) {
        x.d.for_each([&](auto b, auto i, auto k, auto j) {
          ASSERT_EQ(static_cast<const std::int32_t*>(x.d.view().data)[x.d.offset(b, i, k, j)], right) << "m " << m;
        });
      });
    }
  }
}

/// All 65536 products of two codes, one at a time: a row of a has a code at one place and 0 elsewhere, and a row of b
/// has its code everywhere. The products of many rows and of few read a line of k at once where k is 64.
TEST(GemmScaled, EveryProduct) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    for (const auto& size : {std::pair{256, 1}, {256, 64}, {16, 64}}) {
      const int rows = size.first, k = size.second;
      for (int first = 0; first < 256; first += rows) {
        GemmInstance x = make_gemm_instance(GemmCase{"x", 1, rows, 256, k}.d_f32(), dtype);
        auto* a = static_cast<std::uint8_t*>(x.a.view().data);
        auto* b = static_cast<std::uint8_t*>(x.b.view().data);
        for (int i = 0; i < rows * k; ++i) a[i] = 0;
        for (int i = 0; i < rows; ++i) a[i * k + i % k] = static_cast<std::uint8_t>(first + i);
        for (int j = 0; j < 256 * k; ++j) b[j] = static_cast<std::uint8_t>(j / k);
        ASSERT_TRUE(run(path.target(), x));
        x.d.for_each([&](auto, auto i, auto, auto j) {
          const float exact = x.a.get(0, i, 0, i % k) * x.b.get(0, j, 0, 0), got = x.d.get(0, i, 0, j);
          ASSERT_TRUE(got == exact || (std::isnan(got) && std::isnan(exact)))
              << first + i << " times " << j << " is " << got << ", rows " << rows << ", k " << k;
        });
      }
    }
  });
}

/// Rows lie 2^29 bytes apart, so that the last ones begin past byte 2^33. 5 rows are few, 18 are not.
TEST(GemmScaled, MoreThan2To31Elements) {
  constexpr std::int64_t step = std::int64_t{1} << 29, columns = 18;
  on_every_8bit_path([](const Path& path, DType dtype) {
    for (const std::int64_t m : {5, 18}) {
      FarRows far_rows(columns, step, dtype);
      if (const std::string why = far_rows.why_not(path); !why.empty()) GTEST_SKIP() << why;
      const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, m, columns, 20}.d_f32(), dtype);
      GemmOperands operands = x.operands();
      for (Tensor* tensor : {&operands.a, &operands.b}) far_rows.move(tensor);
      const Status status = run_with(path, x.problem, operands);
      ASSERT_TRUE(status) << status.why;
      EXPECT_TRUE(matches(x, x, sums_on(path))) << m;
    }
  });
}

// Hopper's tensor cores keep 13 bits behind the first one of a sum and cut off the rest. Of products of one sign that
// is some 2^-9.6 of a block of 128 where it is most (Judge.PromotedSums has a model of them), and twice as much is
// granted, rounded up.
constexpr double kLostByOneSign = 0x1p-8;

/// Products of one sign, whose roundings would show if they all went in one direction.
TEST(GemmScaled, PositiveE4m3) {
  for (const std::int64_t k : {32, 128, 1000, 1008, 16384}) {
    GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 50, 40, k}.d_f32(), DType::e4m3);
    for (HostTensor* operand : {&x.a, &x.b})
      operand->for_each([&](auto... at) { operand->set(at..., std::abs(operand->get(at...))); });
    std::vector<double> sums;
    x.d.for_each([&](auto b, auto i, auto, auto j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l) sum += static_cast<double>(x.a.get(b, i, 0, l)) * x.b.get(b, j, 0, l);
      sums.push_back(sum);
    });
    run_on_every_path(&x, [&](const Path& path) {
      double worst = 0;
      std::size_t place = 0;
      x.d.for_each([&](auto... at) {
        const double right = sums[place++];
        worst = std::max(worst, std::abs(x.d.get(at...) - right) / right);
      });
      EXPECT_LE(worst, sums_on(path) == judge::Sums::promoted ? kLostByOneSign : 0x1p-18) << "k " << k;
    });
  }
}

/// A scale of 0, below 0, NaN or Inf counts in its row or column, and nowhere else.
TEST(GemmScaled, AnyScale) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    for (const float scale : {0.F, -2.F, kNan, kInf, 1e-30F, 1e30F}) {
      GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 21, 37, 64}.scaling(Scaling::row_col).d_f32(), dtype);
      fill(&x.scale_a, 1);
      fill(&x.scale_b, 1);
      const GemmInstance plain = make_gemm_instance(GemmCase{"x", 1, 21, 37, 64}.d_f32(), dtype);
      x.scale_a.set(0, 4, 0, 0, scale);
      x.scale_b.set(0, 9, 0, 0, scale);
      ASSERT_TRUE(run(path.target(), x));
      ASSERT_TRUE(run(path.target(), plain));
      x.d.for_each([&](auto, auto i, auto, auto j) {
        const float got = x.d.get(0, i, 0, j), without = plain.d.get(0, i, 0, j);
        if (i != 4 && j != 9) {
          ASSERT_EQ(got, without) << i << ", " << j;
        } else if (std::isnan(scale)) {
          ASSERT_TRUE(std::isnan(got)) << i << ", " << j;
        } else if (i != 4 || j != 9) {
          const float right = without * scale;  // rounded once, as D is; Inf times 0 is NaN
          ASSERT_TRUE(got == right || (std::isnan(got) && std::isnan(right))) << i << ", " << j << " is " << got;
        }
      });
      if (std::isfinite(scale * scale)) { EXPECT_TRUE(matches(x, x, sums_on(path))) << scale; }
    }
  });
}

/// Where there is no product, no scale is read.
TEST(GemmScaled, WithoutAProductScalesAreNotRead) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    for (const std::int64_t k : {0, 40}) {
      GemmInstance x = make_gemm_instance(
          GemmCase{"x", 1, 20, 30, k}.alpha(k == 0 ? 1 : 0).beta(2).scaling(Scaling::row_col), dtype);
      fill(&x.scale_a, kNan);
      fill(&x.scale_b, kNan);
      ASSERT_TRUE(run(path.target(), x));
      EXPECT_TRUE(matches(x, x, sums_on(path)));
    }
  });
}

/// One scale for all rows serves with row_col too, and each entry of a batch may have its own.
TEST(GemmScaled, AScaleMayBeShared) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    GemmInstance x = make_gemm_instance(GemmCase{"x", 3, 20, 30, 40}.scaling(Scaling::row_col).shared_b(), dtype);
    x.scale_a = HostTensor(DType::f32, {3, 1, 1, 1});
    x.scale_a.fill_normal(5);
    ASSERT_TRUE(run(path.target(), x));
    EXPECT_TRUE(matches(x, x, sums_on(path)));
  });
}

/// Entries of a batch that share b may each have scales of their own, or share them. They are rows of one matrix only
/// where that is right.
TEST(GemmScaled, EntriesOverOneBMayHaveTheirOwnScales) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    for (const std::int64_t m : {1, 20}) {
      for (const auto& [of_a, of_b] : {std::pair{3, 1}, {3, 3}, {1, 1}}) {  // entries of each scale
        GemmInstance x = make_gemm_instance(GemmCase{"x", 3, m, 30, 40}.scaling(Scaling::row_col).shared_b(), dtype);
        x.scale_a = HostTensor(DType::f32, {of_a, m, 1, 1});
        x.scale_b = HostTensor(DType::f32, {of_b, 30, 1, 1});
        x.scale_a.fill_normal(6);
        x.scale_b.fill_normal(7);
        ASSERT_TRUE(run(path.target(), x));
        EXPECT_TRUE(matches(x, x, sums_on(path)))
            << "m " << m << ", scales of " << of_a << " and " << of_b << " entries";
      }
    }
  });
}

/// Z is (alpha s_a) (s_b sum), so it does not matter that s_a s_b is beyond f32.
TEST(GemmScaled, ScalesWhoseProductIsBeyondF32) {
  on_every_8bit_path([](const Path& path, DType dtype) {
    GemmInstance x =
        make_gemm_instance(GemmCase{"x", 1, 20, 30, 40}.alpha(0x1p-60F).scaling(Scaling::tensor).d_f32(), dtype);
    fill(&x.scale_a, 0x1p70F);
    fill(&x.scale_b, 0x1p70F);
    ASSERT_TRUE(run(path.target(), x));
    EXPECT_TRUE(matches(x, x, sums_on(path)));
    x.d.for_each([&](auto... at) { ASSERT_TRUE(std::isfinite(x.d.get(at...))); });
  });
}

}  // namespace
}  // namespace falchion::testing
