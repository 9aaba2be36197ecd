// tests/gemm_memory_test.cpp: where the operands of a GEMM may lie (docs/contract.md, "GEMM"): empty ones, strides,
// alignment, overlaps, more than 2^31 elements, and a batch whose entries are rows of one matrix.
#include <gtest/gtest.h>

#include <limits>

#include "api/data_of.hpp"
#include "base/size.hpp"
#include "plan/gemm.hpp"
#include "plan/gemm_gpu.hpp"
#include "support/far_rows.hpp"
#include "support/gemm.hpp"
#include "support/gemm_args.hpp"

namespace falchion::testing {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// What has no element may have a null pointer and any strides; what D gets all the same is right.
TEST(GemmContract, EmptyTensorsNeedNoMemory) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t m : {4, 40}) {
          for (const auto& [batch, rows, n, k] :
               {Shape{0, m, 40, 70}, Shape{3, 0, 40, 70}, Shape{3, m, 0, 70}, Shape{3, m, 40, 0}}) {
            const GemmInstance x =
                make_gemm_instance(GemmCase{"x", batch, rows, n, k}.beta(1).biases().residual(), dtype);
            GemmOperands operands = x.operands();
            for (Tensor* tensor : {&operands.a, &operands.b, &operands.c, &operands.d, &operands.residual}) {
              if (!is_empty(*tensor)) continue;
              tensor->data = nullptr;
              tensor->stride = {kMost, kMost, -kMost, kMost};
            }
            const Status status = run_with(path, x.problem, operands);
            ASSERT_TRUE(status) << status.why;
            EXPECT_TRUE(matches(x, x));
          }
        }
      },
      kGemm);
}

/// Strides of 0: one row of a serves all, and one row of b too. They are also below 0 (reversed).
TEST(GemmContract, StridesOfInputs) {
  on_every_path(
      [](const Path& path, DType dtype) {
        for (const std::int64_t m : {5, 35}) {
          GemmInstance x = make_gemm_instance(GemmCase{"x", 2, m, 40, 50}.beta(1).biases().residual(), dtype);
          const auto repeat = [](HostTensor* tensor) {  // what a view with strides of 0 says, as numbers
            tensor->for_each([&](auto b, auto i, auto k, auto l) { tensor->set(b, i, k, l, tensor->get(0, 0, k, l)); });
          };
          for (HostTensor* tensor : {&x.a, &x.b, &x.c, &x.residual, &x.bias_m}) repeat(tensor);
          GemmOperands operands = x.operands();
          for (Tensor* tensor : {&operands.a, &operands.b, &operands.c, &operands.residual, &operands.bias_m})
            tensor->stride[0] = tensor->stride[1] = 0;
          ASSERT_TRUE(run_with(path, x.problem, operands));
          EXPECT_TRUE(matches(x, x));
          const GemmInstance y =
              make_gemm_instance(GemmCase{"y", 2, m, 45, 70}.layout(Layout::reversed).beta(1).residual(), dtype);
          ASSERT_TRUE(run(path.target(), y));
          EXPECT_TRUE(matches(y, y));
        }
      },
      kGemm);
}

TEST(GemmContract, Alignment) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 4, 8, 8}, dtype);
        GemmOperands operands = x.operands();
        operands.b.data = static_cast<std::byte*>(operands.b.data) + 1;
        EXPECT_EQ(run_with(path, x.problem, operands).why,
                  text("b.data = ", operands.b.data, " is 1 past a multiple of ", size_of(dtype),
                       ": it must be aligned to its elements"));
      },
      kGemm);
}

/// d may be the very view c or residual; a shifted one, or any other operand, is refused.
TEST(GemmContract, DOverItsInputs) {
  on_every_path(
      [](const Path& path, DType dtype) {
        const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, 20, 20, 20}.beta(1).biases().residual(), dtype);
        const auto why = [&](Tensor GemmOperands::*which, const Tensor& where) {
          GemmOperands operands = x.operands();
          (operands.*which).data = where.data;
          (operands.*which).stride = where.stride;
          return run_with(path, x.problem, operands).why;
        };
        const Tensor d = x.d.view();
        EXPECT_EQ(why(&GemmOperands::a, d), "d overlaps a");
        EXPECT_EQ(why(&GemmOperands::b, d), "d overlaps b");
        EXPECT_EQ(why(&GemmOperands::bias_n, d), "d overlaps bias_n");
        EXPECT_EQ(why(&GemmOperands::bias_m, d), "d overlaps bias_m");
        for (const auto& [input, name] : {std::pair{x.c.view(), "c"}, {x.residual.view(), "residual"}}) {
          Tensor turned = input;
          std::swap(turned.stride[1], turned.stride[3]);
          EXPECT_EQ(why(&GemmOperands::d, turned), text("d overlaps ", name));
          EXPECT_EQ(why(&GemmOperands::d, input), "");
        }
      },
      kGemm);
}

/// Rows lie 2^29 elements apart in a sparse mapping, so that the last ones begin past element 2^33.
TEST(GemmContract, MoreThan2To31Elements) {
  constexpr std::int64_t step = std::int64_t{1} << 29, rows = 18;
  on_every_path(
      [](const Path& path, DType dtype) {
        FarRows far_rows(rows, step, dtype);
        if (const std::string why = far_rows.why_not(path); !why.empty()) GTEST_SKIP() << why;
        const GemmInstance x = make_gemm_instance(GemmCase{"x", 1, rows, rows, 20}.residual(), dtype);
        GemmOperands operands = x.operands();
        for (Tensor* tensor : {&operands.a, &operands.b, &operands.residual, &operands.d}) far_rows.move(tensor);
        const Status status = run_with(path, x.problem, operands);
        copy_rows(operands.d, x.d.view());
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, x));
      },
      kGemm);
}

/// A batch over one b is one matrix of batch * m rows where rows of one entry follow those of the last in every other
/// operand. The results are right whether it is or not.
TEST(GemmContract, ABatchOverOneBIsOneMatrixWhereItCanBe) {
  struct Row {
    GemmCase what;
    bool one;
  };
  const Row rows[] = {{GemmCase{"decode", 20, 1, 40, 70}.shared_b().beta(1).bias_n().residual(), true},
                      {GemmCase{"decode with gaps", 20, 1, 40, 70}.shared_b().layout(Layout::gaps).residual(), true},
                      {GemmCase{"one bias_m", 20, 1, 40, 70}.shared_b().biases(), true},
                      {GemmCase{"rows", 3, 7, 40, 70}.shared_b().beta(1), true},
                      {GemmCase{"rows of one bias_m", 3, 7, 40, 70}.shared_b().biases(), false},
                      {GemmCase{"transposed", 3, 7, 40, 70}.shared_b().k2(2).layout(Layout::transposed), true},
                      {GemmCase{"rows side by side", 3, 7, 40, 70}.shared_b().layout(Layout::across), false},
                      {GemmCase{"heads", 3, 7, 40, 70}.shared_b().k2(2).layout(Layout::heads_first), false},
                      {GemmCase{"each its own b", 3, 7, 40, 70}, false}};
  on_every_path(
      [&](const Path& path, DType dtype) {
        for (const Row& row : rows) {
          SCOPED_TRACE(row.what.name);
          const GemmInstance x = make_gemm_instance(row.what, dtype);
          Plan plan;
          ASSERT_TRUE(Plan::make(x.problem, path.target(), &plan));
          if (path.backend != Backend::ref) {
            const PlanData& data = *data_of(plan);
            const GemmCall call = path.on_gpu() ? GemmCall(to_gpu_gemm_args(data, *data.variant, x.operands(), nullptr))
                                                : GemmCall(to_gemm_args(data, x.operands(), nullptr));
            EXPECT_EQ(call.batch == 1, row.one);
            EXPECT_EQ(call.batch * call.m, x.problem.batch * x.problem.m);
          }
          ASSERT_TRUE(run(path.target(), x));
          EXPECT_TRUE(matches(x, x));
        }
      },
      kGemm);
}

}  // namespace
}  // namespace falchion::testing
