// tests/norm_memory_test.cpp: where the operands of a norm may lie (docs/contract.md, "Norm"): empty ones, strides,
// alignment, overlaps, more than 2^31 elements.
#include <gtest/gtest.h>

#include <limits>

#include "base/size.hpp"
#include "support/far_rows.hpp"
#include "support/norm.hpp"

namespace falchion::testing {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr Norm kAll{.weight = true, .bias = true, .residual = true, .residual_out = true};

/// What has no element may have a null pointer and any strides; statistics are written all the same.
TEST(NormContract, EmptyTensorsNeedNoMemory) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const auto& [b, s, h, d] : {Shape{0, 3, 2, 40}, Shape{2, 0, 3, 40}, Shape{2, 3, 2, 0}}) {
          Norm terms = kAll;
          terms.mean = terms.rstd = true;
          const NormInstance x = make_norm_instance({"x", b, s, h, d, terms}, dtype);
          NormOperands operands = x.operands();
          for (Tensor* tensor : {&operands.x, &operands.residual, &operands.y, &operands.residual_out, &operands.weight,
                                 &operands.bias, &operands.mean, &operands.rstd}) {
            if (!is_empty(*tensor)) continue;
            tensor->data = nullptr;
            tensor->stride = {kMost, kMost, -kMost, kMost};
          }
          const Status status = run_with(path, x.problem, operands);
          ASSERT_TRUE(status) << status.why;
          EXPECT_TRUE(matches(x, x));
        }
      },
      kNorm);
}

/// One row of x, of the residual and of each factor serves all, and x runs backwards along d.
TEST(NormContract, StridesOfInputs) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const NormInstance x = make_norm_instance({"x", 2, 5, 3, 48, kAll}, dtype);
        NormOperands operands = x.operands();
        NormInstance same = copy_of(x);
        operands.residual.stride = {0, 0, 0, 1};
        operands.x.data = static_cast<std::byte*>(operands.x.data) + 47 * size_of(dtype);
        operands.x.stride[3] = -1;
        operands.weight.shape = {2, 5, 3, 48};
        operands.weight.stride = {0, 0, 0, 1};
        x.x.for_each([&](auto b, auto s, auto h, auto j) {
          same.x.set(b, s, h, j, x.x.get(b, s, h, 47 - j));
          same.residual.set(b, s, h, j, x.residual.get(0, 0, 0, j));
        });
        ASSERT_TRUE(run_with(path, x.problem, operands));
        EXPECT_TRUE(matches(x, same));
      },
      kNorm);
}

TEST(NormContract, EachOperandHasStridesOfItsOwn) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const Shape all{2, 5, 3, 16}, rows{2, 5, 3, 1};
        Norm terms = kAll;
        terms.mean = terms.rstd = true;
        NormInstance x = make_norm_instance({"x", 2, 5, 3, 16, terms}, dtype);
        x.residual = HostTensor(dtype, all, Layout::heads_first);
        x.residual.fill_normal(9);
        x.y = HostTensor(dtype, all, Layout::gaps);
        x.residual_out = HostTensor(dtype, all, Layout::transposed);
        x.rstd = HostTensor(DType::f32, rows, Layout::heads_first);
        for (HostTensor* output : {&x.y, &x.residual_out, &x.rstd}) output->fill_poison();
        ASSERT_TRUE(run(path.target(), x));
        EXPECT_TRUE(matches(x, x));
      },
      kNorm);
}

TEST(NormContract, Alignment) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const NormInstance x = make_norm_instance({"x", 1, 4, 1, 8, kAll}, dtype);
        NormOperands operands = x.operands();
        operands.weight.data = static_cast<std::byte*>(operands.weight.data) + 1;
        EXPECT_EQ(run_with(path, x.problem, operands).why,
                  text("weight.data = ", operands.weight.data, " is 1 past a multiple of ", size_of(dtype),
                       ": it must be aligned to its elements"));
      },
      kNorm);
}

/// y and residual_out may each be the very view of x or of the residual; a shifted one, or any other operand, is
/// refused.
TEST(NormContract, OutputsOverInputs) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const NormInstance x = make_norm_instance({"x", 1, 20, 1, 20, kAll}, dtype);
        const auto why = [&](Tensor NormOperands::*which, const Tensor& where) {
          NormOperands operands = x.operands();
          (operands.*which).data = where.data;
          (operands.*which).stride = where.stride;
          return run_with(path, x.problem, operands).why;
        };
        EXPECT_EQ(why(&NormOperands::weight, x.y.view()), "y overlaps weight");
        EXPECT_EQ(why(&NormOperands::residual_out, x.y.view()), "y overlaps residual_out");
        EXPECT_EQ(why(&NormOperands::bias, x.residual_out.view()), "residual_out overlaps bias");
        for (const auto& [input, name] : {std::pair{x.x.view(), "x"}, {x.residual.view(), "residual"}}) {
          for (const auto& [output, of] :
               {std::pair{&NormOperands::y, "y"}, {&NormOperands::residual_out, "residual_out"}}) {
            Tensor turned = input;
            std::swap(turned.stride[1], turned.stride[3]);
            EXPECT_EQ(why(output, turned), text(of, " overlaps ", name));
            EXPECT_EQ(why(output, input), "");
          }
        }
      },
      kNorm);
}

/// Rows lie 2^29 elements apart in a sparse mapping, so that the last ones begin past element 2^33.
TEST(NormContract, MoreThan2To31Elements) {
  constexpr std::int64_t step = std::int64_t{1} << 29, rows = 18, d = 64;
  on_every_path(
      [](const Path& path, DType dtype) {
        FarRows far_rows(rows, step, dtype);
        if (const std::string why = far_rows.why_not(path); !why.empty()) GTEST_SKIP() << why;
        const NormInstance x = make_norm_instance({"x", 1, rows, 1, d, kAll}, dtype);
        NormOperands operands = x.operands();
        for (Tensor* tensor : {&operands.x, &operands.residual, &operands.y, &operands.residual_out})
          far_rows.move(tensor);
        const Status status = run_with(path, x.problem, operands);
        copy_rows(operands.y, x.y.view());
        copy_rows(operands.residual_out, x.residual_out.view());
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, x));
      },
      kNorm);
}

}  // namespace
}  // namespace falchion::testing
