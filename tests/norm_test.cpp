// tests/norm_test.cpp: runs a table of norms on every path of this build in every dtype. What holds for any norm is
// here too: a plan gives the same bits again, and those of a row do not depend on how many rows there are.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "support/norm.hpp"

namespace falchion::testing {
namespace {

using enum Layout;
constexpr NormKind kRms = NormKind::rms;
constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBf16 = DType::bf16;

/// Every operand that a layer norm can have.
constexpr Norm kAll{.weight = true, .bias = true, .residual = true, .residual_out = true, .mean = true, .rstd = true};
constexpr Norm kAllOfRms{
    .kind = kRms, .weight = true, .bias = true, .residual = true, .residual_out = true, .rstd = true};

const NormCase kCases[] = {
    // Some extent is 0 or 1.
    {"no_rows", 0, 3, 4, 5, kAll},
    {"no_d", 2, 3, 1, 0, kAll},
    {"one_of_all", 1, 1, 1, 1, kAllOfRms},
    {"one_row", 1, 1, 1, 300, kAll},
    // A row on both sides of chunks, of a warp, of CTAs and of what registers hold.
    {"d_7", 1, 9, 1, 7, kAll},
    {"d_8", 1, 300, 1, 8, kAll},
    {"d_64", 2, 5, 3, 64, kAllOfRms},
    {"d_256", 1, 5, 1, 256, kAll},
    {"d_264", 1, 5, 1, 264, kAll},
    {"d_512", 1, 5, 1, 512, kAllOfRms},
    {"d_1000", 1, 5, 1, 1000, kAll},
    {"d_4096", 1, 3, 1, 4096, kAll},
    {"d_8200", 1, 3, 1, 8200, kAll},
    {"d_16384", 1, 2, 1, 16384, kAll},
    {"d_16392", 1, 2, 1, 16392, kAll},
    {"d_20001", 1, 2, 1, 20001, kAllOfRms},
    // Each term of the definition.
    {"layer", 1, 20, 1, 96, {}},
    {"rms", 1, 20, 1, 96, {.kind = kRms}},
    {"weight", 1, 20, 1, 96, {.kind = kRms, .weight = true}},
    {"one_more_than_weight", 1, 20, 1, 96, {.kind = kRms, .zero_centered = true, .weight = true}},
    {"bias", 1, 20, 1, 96, {.bias = true}},
    {"residual", 1, 20, 1, 96, {.residual = true}},
    {"in_place", 1, 20, 1, 96, kAll, dense, {1, 1, 1}, {1, 1, 1}, DType::as_q, true},
    {"in_place_long", 1, 2, 1, 16400, kAll, dense, {1, 1, 1}, {1, 1, 1}, DType::as_q, true},
    // The types.
    {"y_f32", 1, 20, 1, 96, {.dtype_y = kF32, .dtype_residual = kF32, .residual = true, .residual_out = true}},
    {"y_bf16", 1, 20, 1, 96, {.dtype_y = kBf16, .dtype_residual = kF16, .residual = true, .residual_out = true}},
    {"factors_f32", 1, 20, 1, 96, kAll, dense, {1, 1, 1}, {1, 1, 1}, kF32},
    {"factors_f16", 1, 20, 1, 96, kAll, dense, {1, 1, 1}, {1, 1, 1}, kF16},
    // A weight for each head, a bias for each sequence.
    {"weight_by_head", 2, 5, 3, 64, kAll, dense, {1, 1, 3}, {2, 1, 1}},
    {"weight_by_all", 2, 5, 3, 40, kAllOfRms, dense, {2, 5, 3}, {2, 5, 1}},
    // Each way in which the axes of the rows become one.
    {"rows_first", 30, 1, 1, 64, kAll},
    {"rows_last", 1, 1, 30, 64, kAll},
    {"bias_by_sequence", 2, 5, 3, 64, kAll, dense, {1, 1, 1}, {2, 1, 1}},
    {"weight_by_token", 2, 5, 3, 64, kAllOfRms, dense, {1, 5, 1}},
    // How the tensors lie in memory.
    {"heads_first", 2, 5, 3, 64, kAll, heads_first},
    {"gaps", 2, 5, 3, 64, kAll, gaps},
    {"odd", 2, 5, 3, 64, kAll, odd},
    {"reversed", 2, 5, 3, 64, kAllOfRms, reversed},
    {"transposed", 2, 5, 3, 64, kAll, transposed},
    {"transposed_long", 1, 1, 2, 16400, kAll, transposed},
};

TEST(Norm, Cases) {
  std::uint64_t seed = 100;
  for (const NormCase& row : kCases) {
    SCOPED_TRACE(row.name);
    ++seed;
    on_every_path(
        [&](const Path& path, DType dtype) {
          const NormInstance x = make_norm_instance(row, dtype, 10 * seed), fresh = copy_of(x);
          const Status status = run(path.target(), x);
          ASSERT_TRUE(status) << status.why;
          EXPECT_TRUE(matches(x, fresh));
        },
        kNorm);
  }
}

TEST(Norm, APlanGivesTheSameBitsAgain) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const NormInstance x = make_norm_instance({"bits", 1, 150, 1, 700, kAll}, dtype);
        Plan plan;
        ASSERT_TRUE(Plan::make(x.problem, path.target(3), &plan));
        ASSERT_TRUE(run(plan, x));
        NormInstance again = x;
        again.y = x.y.like();
        for (int i = 0; i < 4; ++i) {
          again.y.fill_poison();
          ASSERT_TRUE(run(plan, again));
          ASSERT_EQ(std::memcmp(x.y.memory(), again.y.memory(), x.y.memory_bytes()), 0);
        }
      },
      kNorm);
}

TEST(Norm, ARowsBitsDoNotDependOnTheNumberOfRows) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t d : {40, 1000, 4096}) {
          const NormInstance many = make_norm_instance({"many", 1, 37, 1, d, {.weight = true}}, dtype);
          NormInstance one = make_norm_instance({"one", 1, 1, 1, d, {.weight = true}}, dtype);
          ASSERT_TRUE(run(path.target(), many));
          one.weight = many.weight;
          for (const std::int64_t row : {0, 1, 36}) {
            for (std::int64_t j = 0; j < d; ++j) one.x.set(0, 0, 0, j, many.x.get(0, row, 0, j));
            ASSERT_TRUE(run(path.target(), one));
            for (std::int64_t j = 0; j < d; ++j) ASSERT_EQ(one.y.get(0, 0, 0, j), many.y.get(0, row, 0, j));
          }
        }
      },
      kNorm);
}

/// The threads of a run have scratch memory of their own. (The thread sanitizer looks at suites of this name.)
TEST(Threads, ANormOfLongRows) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (path.backend == Backend::ref) return;  // it runs on its caller's thread, and slowly
        NormInstance x = make_norm_instance({"x", 1, 60, 1, 9000, {.weight = true, .residual = true}}, dtype);
        Plan plan;
        ASSERT_TRUE(Plan::make(x.problem, path.target(3), &plan));
        for (int i = 0; i < 3; ++i) {
          x.y.fill_poison();
          ASSERT_TRUE(run(plan, x));
          ASSERT_TRUE(matches(x, x));
        }
      },
      kNorm);
}

/// The judge finds an element that is off by a little more than roundings make, a wrong mean, rstd or sum, and a NaN in
/// the place of a number; and it passes what the definition gives.
TEST(Judge, ANormThatIsOffIsFound) {
  constexpr Norm kOfRms{.kind = kRms, .eps = 1e4F, .zero_centered = true, .weight = true, .rstd = true};
  const auto finds_all = [](const Norm& terms, DType dtype) {
    const NormInstance x = make_norm_instance({"x", 1, 20, 1, 64, terms}, dtype);
    ASSERT_TRUE(run(Backend::ref, x));
    EXPECT_TRUE(matches(x, x));
    const auto finds = [&](HostTensor NormInstance::*which, std::int64_t j, const auto& wrong) {
      NormInstance other = x;
      (other.*which) = (x.*which).like();
      (x.*which).for_each([&](auto... at) { (other.*which).set(at..., (x.*which).get(at...)); });
      (other.*which).set(0, 7, 0, j, wrong((x.*which).get(0, 7, 0, j)));
      return !matches(other, x);
    };
    const float off = dtype == kF32 ? 1e-4F : dtype == kF16 ? 0.03F : 0.2F;
    const auto more = [&](float right) { return right + (right < 0 ? -off : off); };
    const auto nan = [](float) { return std::numeric_limits<float>::quiet_NaN(); };
    EXPECT_TRUE(finds(&NormInstance::y, 9, more));
    EXPECT_TRUE(finds(&NormInstance::y, 63, nan));
    if (terms.residual_out) { EXPECT_TRUE(finds(&NormInstance::residual_out, 0, more)); }
    if (terms.mean) {
      EXPECT_TRUE(finds(&NormInstance::mean, 0, [](float m) { return m + 1e-5F; }));
    }
    EXPECT_TRUE(finds(&NormInstance::rstd, 0, [](float r) { return r * 1.00001F; }));
  };
  for (const DType dtype : kTypes) {
    for (const Norm& terms : {kAll, kOfRms}) {
      SCOPED_TRACE(text(name(dtype), " ", name(terms.kind)));
      finds_all(terms, dtype);
    }
  }
}

/// Each row is judged by itself, and squares that f32 cannot hold excuse nothing. What kernels gave that lost them is
/// found: Inf, 0, and a rstd that is 4 % too large. So is what is off by that much in a row of ordinary numbers beside
/// one whose rstd is 1e22.
TEST(Judge, ANormOfTinyOrHugeNumbersThatIsOffIsFound) {
  NormInstance x = make_norm_instance({"x", 1, 3, 1, 64, {.kind = kRms, .eps = 0, .rstd = true}}, kF32);
  constexpr float kSizes[] = {1e-22F, 1, 1e25F};
  x.x.for_each([&](auto b, auto s, auto h, auto j) { x.x.set(b, s, h, j, kSizes[s] * x.x.get(b, s, h, j)); });
  ASSERT_TRUE(run(Backend::ref, x));
  EXPECT_TRUE(matches(x, x));
  for (const std::int64_t row : {0, 1, 2}) {
    for (const float off : {0.F, 1.045F, 1.00001F, std::numeric_limits<float>::infinity()}) {
      NormInstance other = x;
      other.y = x.y.like();
      x.y.for_each(
          [&](auto b, auto s, auto h, auto j) { other.y.set(b, s, h, j, x.y.get(b, s, h, j) * (s == row ? off : 1)); });
      EXPECT_FALSE(matches(other, x)) << "y of row " << row << " times " << off;
      other.y = x.y;
      other.rstd = x.rstd.like();
      for (const std::int64_t s : {0, 1, 2}) other.rstd.set(0, s, 0, 0, x.rstd.get(0, s, 0, 0) * (s == row ? off : 1));
      EXPECT_FALSE(matches(other, x)) << "rstd of row " << row << " times " << off;
    }
  }
}

}  // namespace
}  // namespace falchion::testing
