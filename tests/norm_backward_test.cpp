// tests/norm_backward_test.cpp: runs a table of gradients of norms on every path of this build in every dtype. What
// holds for any of them is here too: laws of the gradients, and that a plan gives the same bits again.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "support/norm_backward.hpp"

namespace falchion::testing {
namespace {

using enum Layout;
constexpr NormKind kRms = NormKind::rms;
constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBf16 = DType::bf16;
constexpr Shape kOne{1, 1, 1};

/// Every operand that a layer norm can have.
constexpr Norm kAll{.weight = true, .bias = true, .residual_out = true};
constexpr Norm kUsual{.weight = true, .bias = true};
constexpr Norm kOfRms{.kind = kRms, .weight = true};

const NormGradientCase kCases[] = {
    // Some extent is 0 or 1.
    {"no_rows", 0, 3, 4, 5, kAll},
    {"no_rows_of_each_head", 2, 0, 3, 5, kAll, dense, {2, 1, 3}, {2, 1, 3}},
    {"no_d", 2, 3, 1, 0, kAll},
    {"one_of_all", 1, 1, 1, 1, kOfRms},
    {"one_row", 1, 1, 1, 300, kAll},
    // A row on both sides of chunks, of a warp, of CTAs and of what registers hold.
    {"d_7", 1, 9, 1, 7, kAll},
    {"d_8", 1, 300, 1, 8, kAll},
    {"d_64", 2, 5, 3, 64, kOfRms},
    {"d_128", 1, 700, 1, 128, kUsual},
    {"d_264", 1, 5, 1, 264, kAll},
    {"d_512", 1, 40, 1, 512, kOfRms},
    {"d_1000", 1, 33, 1, 1000, kAll},
    {"d_1024", 1, 150, 1, 1024, kUsual},
    {"d_4096", 1, 9, 1, 4096, kAll},
    {"d_8200", 1, 3, 1, 8200, kAll},
    {"d_16384", 1, 3, 1, 16384, kUsual},
    {"d_16392", 1, 3, 1, 16392, kAll},
    {"d_20001", 1, 5, 1, 20001, kOfRms},
    // Each term of the definition.
    {"layer", 1, 20, 1, 96, {}},
    {"rms", 1, 20, 1, 96, {.kind = kRms}},
    {"weight", 1, 20, 1, 96, {.kind = kRms, .weight = true}},
    {"one_more_than_weight", 1, 20, 1, 96, {.kind = kRms, .zero_centered = true, .weight = true}},
    {"bias", 1, 20, 1, 96, {.bias = true}},
    {"residual", 1, 20, 1, 96, {.residual_out = true}},
    // What is not wanted.
    {"grad_x_alone", 1, 20, 1, 96, {.weight = true, .frozen = 2}},
    {"no_grad_x", 1, 20, 1, 96, {.weight = true, .bias = true, .frozen = 1}},
    {"grad_bias_alone", 1, 20, 1, 96, {.weight = true, .bias = true, .frozen = 3}},
    {"nothing", 1, 20, 1, 96, {.weight = true, .frozen = 3}},
    // grad_x in the place of an input.
    {"over_x", 1, 40, 1, 96, kAll, dense, kOne, kOne, DType::as_q, Over::x},
    {"over_grad_y", 1, 40, 1, 96, kAll, dense, kOne, kOne, DType::as_q, Over::grad_y},
    {"over_grad_residual_out", 1, 40, 1, 96, kAll, dense, kOne, kOne, DType::as_q, Over::grad_residual_out},
    {"over_x_long", 1, 2, 1, 16400, kAll, dense, kOne, kOne, DType::as_q, Over::x},
    {"over_grad_y_of_two_sweeps", 2, 5, 3, 96, kAll, dense, {1, 1, 3}, {2, 1, 1}, DType::as_q, Over::grad_y},
    // The types.
    {"grad_y_f32", 1, 20, 1, 96, {.dtype_y = kF32, .dtype_residual = kF32, .weight = true, .residual_out = true}},
    {"grad_y_bf16", 1, 20, 1, 96, {.dtype_y = kBf16, .dtype_residual = kF16, .weight = true, .residual_out = true}},
    {"factors_f32", 1, 20, 1, 96, kAll, dense, kOne, kOne, kF32},
    {"factors_f16", 1, 20, 1, 96, kAll, dense, kOne, kOne, kF16},
    // Which rows share an element of grad_weight and of grad_bias.
    {"by_head", 2, 50, 3, 64, kUsual, dense, {1, 1, 3}, {1, 1, 3}},
    {"by_sequence", 3, 50, 2, 64, kUsual, dense, {3, 1, 1}, {3, 1, 1}},
    {"by_token", 2, 5, 3, 64, kUsual, dense, {1, 5, 1}, {1, 5, 1}},
    {"by_sequence_and_head", 2, 70, 3, 64, kUsual, dense, {2, 1, 3}, {2, 1, 3}},
    {"by_row", 2, 25, 3, 40, kUsual, dense, {2, 25, 3}, {2, 25, 3}},
    {"weight_by_head_bias_by_sequence", 2, 40, 3, 64, kAll, dense, {1, 1, 3}, {2, 1, 1}},
    {"weight_by_all_bias_by_none", 2, 5, 3, 40, kUsual, dense, {2, 5, 3}, kOne},
    {"by_row_long", 1, 3, 2, 16400, kUsual, dense, {1, 3, 2}, {1, 3, 2}},
    {"by_head_long", 2, 30, 2, 16400, kOfRms, dense, {1, 1, 2}},
    // Each way in which the axes of the rows become one.
    {"rows_first", 30, 1, 1, 64, kAll},
    {"rows_last", 1, 1, 30, 64, kAll},
    {"all_axes", 4, 5, 3, 64, kAll},
    // How the tensors lie in memory.
    {"heads_first", 2, 5, 3, 64, kAll, heads_first},
    {"gaps", 2, 5, 3, 64, kAll, gaps},
    {"odd", 2, 5, 3, 64, kAll, odd},
    {"odd_4096", 1, 5, 1, 4096, kUsual, odd},
    {"reversed", 2, 5, 3, 64, kAll, reversed},
    {"transposed", 2, 5, 3, 64, kAll, transposed},
    {"transposed_long", 1, 1, 2, 16400, kUsual, transposed},
};

TEST(NormBackward, Cases) {
  std::uint64_t seed = 100;
  for (const NormGradientCase& row : kCases) {
    SCOPED_TRACE(row.name);
    ++seed;
    on_every_path(
        [&](const Path& path, DType dtype) {
          const NormGradients x = make_norm_gradients(row, dtype, 10 * seed), fresh = copy_of(x);
          const Status status = run(path.target(), x);
          ASSERT_TRUE(status) << status.why;
          EXPECT_TRUE(matches(x, fresh));
        },
        kNormBackward);
  }
}

/// Without a weight y does not change when a number is added to a row, or, but for eps, when a row of RMSNorm is
/// multiplied by one. So the gradient of a layer norm has the sum 0, and that of RMSNorm is at a right angle to x. Both
/// hold for a layer norm.
TEST(NormBackward, LawsOfGradX) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (dtype != kF32) return;
        for (const std::int64_t d : {7, 64, 1000, 4096, 16400}) {
          for (const NormKind kind : {NormKind::layer, kRms}) {
            const NormGradients x = make_norm_gradients({"x", 1, 5, 1, d, {.kind = kind, .eps = 0}}, dtype);
            ASSERT_TRUE(run(path.target(), x));
            for (std::int64_t row = 0; row < 5; ++row) {
              double sum = 0, along = 0;
              for (std::int64_t j = 0; j < d; ++j) {
                sum += x.grad_x.get(0, row, 0, j);
                along += double{x.grad_x.get(0, row, 0, j)} * x.x.get(0, row, 0, j);
              }
              if (kind == NormKind::layer) { EXPECT_NEAR(sum, 0, 1e-6 * static_cast<double>(d)); }
              EXPECT_NEAR(along, 0, 1e-6 * static_cast<double>(d));
            }
          }
        }
      },
      kNormBackward);
}

/// y of ref's forward pass in f32, in double: the sum of grad_y y, whose derivative the gradients are.
double loss(const NormGradients& x) {
  const Shape& all = x.x.shape();
  const auto d = static_cast<double>(all[3]);
  double out = 0;
  for (std::int64_t row = 0; row < all[1]; ++row) {
    double mean = 0, squares = 0;
    for (std::int64_t j = 0; x.problem.kind == NormKind::layer && j < all[3]; ++j) mean += x.x.get(0, row, 0, j) / d;
    for (std::int64_t j = 0; j < all[3]; ++j) squares += std::pow(x.x.get(0, row, 0, j) - mean, 2) / d;
    for (std::int64_t j = 0; j < all[3]; ++j)
      out += x.grad_y.get(0, row, 0, j) * x.weight.get(0, 0, 0, j) * (x.x.get(0, row, 0, j) - mean) /
             std::sqrt(squares + x.problem.eps);
  }
  return out;
}

/// The gradients are the derivatives of the loss by central differences.
TEST(NormBackward, AreDerivatives) {
  for (const NormKind kind : {NormKind::layer, kRms}) {
    const NormGradients x = make_norm_gradients({"x", 1, 3, 1, 11, {.kind = kind, .eps = 0.1F, .weight = true}}, kF32);
    ASSERT_TRUE(run(Backend::ref, x));
    const auto derivative = [&](const HostTensor& of, std::int64_t row, std::int64_t j) {
      const float value = of.get(0, row, 0, j), step = 0x1p-8F;
      HostTensor moved = of;
      moved.set(0, row, 0, j, value + step);
      const double above = loss(x);
      moved.set(0, row, 0, j, value - step);
      const double below = loss(x);
      moved.set(0, row, 0, j, value);
      return (above - below) / (2 * double{step});
    };
    for (std::int64_t j = 0; j < 11; ++j) {
      for (std::int64_t row = 0; row < 3; ++row) EXPECT_NEAR(x.grad_x.get(0, row, 0, j), derivative(x.x, row, j), 1e-3);
      EXPECT_NEAR(x.grad_weight.get(0, 0, 0, j), derivative(x.weight, 0, j), 1e-3);
    }
  }
}

std::string bytes_of(const HostTensor& x) { return {reinterpret_cast<const char*>(x.memory()), x.memory_bytes()}; }

TEST(NormBackward, APlanGivesTheSameBitsAgain) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t d : {64, 700, 16400}) {
          const NormGradients x = make_norm_gradients({"bits", 1, d < 1000 ? 450 : 40, 1, d, kAll}, dtype);
          Plan plan;
          ASSERT_TRUE(Plan::make(x.problem, Pass::backward, path.target(3), &plan));
          ASSERT_TRUE(run(plan, x));
          for (int i = 0; i < 4; ++i) {
            NormGradients again = x;
            for (HostTensor NormGradients::*out :
                 {&NormGradients::grad_x, &NormGradients::grad_weight, &NormGradients::grad_bias}) {
              (again.*out) = (x.*out).like();
              (again.*out).fill_poison();
            }
            ASSERT_TRUE(run(plan, again));
            ASSERT_EQ(bytes_of(x.grad_x), bytes_of(again.grad_x));
            ASSERT_EQ(bytes_of(x.grad_weight), bytes_of(again.grad_weight));
            ASSERT_EQ(bytes_of(x.grad_bias), bytes_of(again.grad_bias));
          }
        }
      },
      kNormBackward);
}

TEST(NormBackward, ARowsBitsDoNotDependOnTheNumberOfRows) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t d : {40, 1000, 4096}) {
          const NormGradients many = make_norm_gradients({"many", 1, 37, 1, d, kUsual}, dtype);
          NormGradients one = make_norm_gradients({"one", 1, 1, 1, d, kUsual}, dtype);
          ASSERT_TRUE(run(path.target(), many));
          one.weight = many.weight;
          for (const std::int64_t row : {0, 1, 36}) {
            for (std::int64_t j = 0; j < d; ++j) {
              one.x.set(0, 0, 0, j, many.x.get(0, row, 0, j));
              one.grad_y.set(0, 0, 0, j, many.grad_y.get(0, row, 0, j));
            }
            ASSERT_TRUE(run(path.target(), one));
            for (std::int64_t j = 0; j < d; ++j) ASSERT_EQ(one.grad_x.get(0, 0, 0, j), many.grad_x.get(0, row, 0, j));
          }
        }
      },
      kNormBackward);
}

/// The threads of a run have scratch memory and sums of their own. (The thread sanitizer looks at suites of this name.)
TEST(Threads, GradientsOfNorms) {
  on_every_path(
      [](const Path& path, DType dtype) {
        if (path.backend == Backend::ref) return;  // it runs on its caller's thread, and slowly
        for (const std::int64_t d : {300, 9000}) {
          NormGradients x = make_norm_gradients({"x", 1, d < 1000 ? 1500 : 60, 1, d, kAll}, dtype);
          Plan plan;
          ASSERT_TRUE(Plan::make(x.problem, Pass::backward, path.target(3), &plan));
          for (int i = 0; i < 3; ++i) {
            for (HostTensor* out : {&x.grad_x, &x.grad_weight, &x.grad_bias}) out->fill_poison();
            ASSERT_TRUE(run(plan, x));
            ASSERT_TRUE(matches(x, x));
          }
        }
      },
      kNormBackward);
}

/// The judge finds an element that is off by a little more than roundings make, and a NaN in the place of a number; and
/// it passes what the definition gives.
TEST(Judge, GradientsOfANormThatAreOffAreFound) {
  for (const DType dtype : kTypes) {
    const NormGradients x = make_norm_gradients({"x", 1, 20, 1, 64, kAll}, dtype);
    ASSERT_TRUE(run(Backend::ref, x));
    EXPECT_TRUE(matches(x, x));
    const auto finds = [&](HostTensor NormGradients::*which, std::int64_t row, std::int64_t j, float off) {
      NormGradients other = x;
      (other.*which) = (x.*which).like();
      (x.*which).for_each([&](auto... at) { (other.*which).set(at..., (x.*which).get(at...)); });
      const float right = (x.*which).get(0, row, 0, j);
      (other.*which).set(0, row, 0, j, right + (right < 0 ? -off : off));
      return !matches(other, x);
    };
    const float off = dtype == kF32 ? 1e-4F : dtype == kF16 ? 0.05F : 0.4F;
    EXPECT_TRUE(finds(&NormGradients::grad_x, 7, 9, off));
    EXPECT_TRUE(finds(&NormGradients::grad_weight, 0, 9, off));
    EXPECT_TRUE(finds(&NormGradients::grad_bias, 0, 63, off));
    for (const auto which : {&NormGradients::grad_x, &NormGradients::grad_weight, &NormGradients::grad_bias})
      EXPECT_TRUE(finds(which, 0, 0, std::numeric_limits<float>::quiet_NaN()));
  }
}

}  // namespace
}  // namespace falchion::testing
