// tests/norm_memory_test.cpp: where the operands of a norm may lie (docs/contract.md, "Norm"): empty ones, strides,
// alignment, overlaps, more than 2^31 elements.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <limits>

#include "api/validate.hpp"
#include "cuda/device_copy.hpp"
#include "support/norm.hpp"
#include "types/size.hpp"

namespace falchion::testing {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr Norm kAll{.weight = true, .bias = true, .residual = true, .residual_out = true};

Status run_with(const Path& path, const Norm& problem, const NormOperands& operands) {
  Plan plan;
  if (Status status = Plan::make(problem, path.target(), &plan); !status) return status;
  // Operands that must be refused may have views that reach anywhere, so they are handed over as they are.
  if (path.on_gpu() && validate_operands(problem, operands)) return cuda::run_on_device(plan, problem, operands);
  const Workspace workspace(plan.workspace_bytes());
  return plan.run(operands, workspace.data(), workspace.size());
}

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
        const std::size_t bytes = static_cast<std::size_t>(rows * step * size_of(dtype));
        if (!has_room(path, bytes)) GTEST_SKIP() << "this device has no room for " << bytes << " bytes";
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) GTEST_SKIP() << "this system maps no " << bytes << " sparse bytes";
        const NormInstance x = make_norm_instance({"x", 1, rows, 1, d, kAll}, dtype);
        NormOperands operands = x.operands();
        std::int64_t slot = 0;
        const auto copy_rows = [&](const Tensor& from, const Tensor& to) {
          for (std::int64_t i = 0; i < rows; ++i)
            std::memcpy(static_cast<std::byte*>(to.data) + i * to.stride[1] * size_of(dtype),
                        static_cast<std::byte*>(from.data) + i * from.stride[1] * size_of(dtype),
                        static_cast<std::size_t>(d * size_of(dtype)));
        };
        for (Tensor* tensor : {&operands.x, &operands.residual, &operands.y, &operands.residual_out}) {
          const Tensor from = *tensor;
          tensor->data = static_cast<std::byte*>(memory) + 64 * slot++ * size_of(dtype);
          tensor->stride[1] = step;
          copy_rows(from, *tensor);
        }
        const Status status = run_with(path, x.problem, operands);
        copy_rows(operands.y, x.y.view());
        copy_rows(operands.residual_out, x.residual_out.view());
        munmap(memory, bytes);
        ASSERT_TRUE(status) << status.why;
        EXPECT_TRUE(matches(x, x));
      },
      kNorm);
}

}  // namespace
}  // namespace falchion::testing
