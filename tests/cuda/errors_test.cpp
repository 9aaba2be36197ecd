// tests/cuda/errors_test.cpp: the rules of docs/contract.md for a GPU without a kernel, a machine without a GPU or with
// another one, a broken context, and errors that other code left in the CUDA runtime: each of these gives a Status with
// the reason, and the process lives. A test that breaks the context runs in a child process, which is this executable
// again with one of the tests named DISABLED_.
#include <cstdlib>

#include "child.hpp"
#include "device.hpp"
#include "kernels.hpp"
#include "plan/plan_data.hpp"

namespace falchion::testing {
namespace {

bool variant_is_built() { return !built_paths().empty(); }

Case ordinary() { return Case{"x", 1, 100, 120, 4, 2, 64, 64}.causal(); }

// ---- no GPU: these run everywhere -----------------------------------------------------------------------------------

TEST(NoGpu, IsSaid) { expect_child_passes("NoGpu.DISABLED_ChildIsSaid", "-1"); }
TEST(NoGpu, DISABLED_ChildIsSaid) {
  EXPECT_EQ(cuda::current_device().sm, 0);
  EXPECT_FALSE(cuda::current_device().why_not.empty());
  EXPECT_FALSE(build_info().empty());
  Instance x = make_instance(ordinary(), DType::bf16);
  Plan plan;
  const Status here = Plan::make(x.problem, Pass::forward, Backend::sm80, &plan);
  EXPECT_FALSE(here);
  if (variant_is_built()) { EXPECT_EQ(here.code, Code::device) << here.why; }
  // Backend::best falls back to the CPU.
  ASSERT_OK(run(Target{}, &x));
  EXPECT_TRUE(matches(x, Reference(x)));
}

/// A plan for an architecture that this machine lacks can be made and read, but not run.
TEST(NoGpu, PlansForAnother) { expect_child_passes("NoGpu.DISABLED_ChildPlansForAnother", "-1"); }
TEST(NoGpu, DISABLED_ChildPlansForAnother) {
  if (!variant_is_built()) GTEST_SKIP() << "this build has no GPU variant";
  const Instance x = make_instance(ordinary(), DType::bf16);
  for (const int sm : {80, 90}) {
    Target target(Backend::sm80);
    target.sm = sm;
    Plan plan;
    ASSERT_OK(Plan::make(x.problem, Pass::forward, target, &plan));
    EXPECT_NE(plan.describe().find("sm80"), std::string::npos) << plan.describe();
    EXPECT_FALSE(plan.explain().empty());
    const Workspace workspace(plan.workspace_bytes());
    const Status status = plan.run(x.operands(), workspace.data(), workspace.size());
    EXPECT_EQ(status.code, Code::device) << status.why;
    EXPECT_FALSE(status.why.empty());
  }
}

// ---- a context that is broken ---------------------------------------------------------------------------------------

TEST(CudaErrors, AStickyErrorBeforeTheCall) { expect_child_passes("CudaErrors.DISABLED_ChildSticky", nullptr); }
TEST(CudaErrors, DISABLED_ChildSticky) {
  const Path path = usable_paths().front();
  const DType dtype = path.has(DType::bf16) ? DType::bf16 : path.has(DType::f16) ? DType::f16 : DType::f32;
  Instance x = make_instance(ordinary(), dtype);
  // It is never deleted, because freeing memory in a broken context would only fail again.
  auto* device = new OnDevice(path, &x);
  ASSERT_OK(device->status());
  ASSERT_OK(device->run());
  ASSERT_NE(launch_fault(), 0);
  for (int i = 0; i < 3; ++i) {
    const Status status = device->run();
    EXPECT_EQ(status.code, Code::device);
    EXPECT_NE(status.why.find("cudaError"), std::string::npos) << status.why;
  }
  Plan plan;  // A new plan may be made or refused, but the answer is a Status.
  const Status made = Plan::make(x.problem, Pass::forward, path.target(), &plan);
  if (!made) { EXPECT_FALSE(made.why.empty()); }
  Instance y = make_instance(ordinary(), DType::f32);  // The CPU is not affected.
  EXPECT_TRUE(run(host_target(), &y));
  EXPECT_TRUE(matches(y, Reference(y)));
  // The process ends here, so that no destructor of a library meets the broken context.
  std::_Exit(HasFailure() ? 1 : 0);
}

/// An error that is not sticky and was left by other code does not fail a valid run. This holds for the first run,
/// which prepares its kernels, and for later ones. (The error may be gone after the first run, because
/// cudaFuncSetAttribute resets the last error.)
TEST(CudaErrors, AnErrorOfSomebodyElse) {
  on_every_path([](const Path& path, DType dtype) {
    Instance x = make_instance(ordinary(), dtype);
    OnDevice device(path, &x);
    ASSERT_OK(device.status());
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(cudaSetDevice(12345), cudaErrorInvalidDevice);
      ASSERT_OK(device.run());
    }
    ASSERT_OK(device.download());
    EXPECT_TRUE(matches(x, Reference(x)));
    (void)cudaGetLastError();
  });
}

TEST(CudaErrors, OutOfMemory) {
  on_every_path([](const Path& path, DType dtype) {
    cuda::Memory memory;
    const Status status = cuda::Memory::make(std::size_t{1} << 50, &memory);
    EXPECT_EQ(status.code, Code::device);
    EXPECT_NE(status.why.find("cudaErrorMemoryAllocation"), std::string::npos) << status.why;
    EXPECT_NE(status.why.find("1125899906842624"), std::string::npos) << status.why;
    Instance x = make_instance(ordinary(), dtype);
    ASSERT_OK(run(path, &x));
    EXPECT_TRUE(matches(x, Reference(x)));
  });
}

}  // namespace
}  // namespace falchion::testing
