// tests/cuda/main.cpp: main() of every executable with the prefix cuda_. Where there is no device, or no variant for
// it, each test is skipped with the reason. After each test the device must be free of errors.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "plan/operation.hpp"
#include "runtime/runtime.hpp"
#include "support/paths.hpp"

namespace falchion::testing {
namespace {

class Device : public ::testing::EmptyTestEventListener {
 public:
  Device() {
    if (const cuda::Device device = cuda::current_device(); device.sm == 0)
      why_not_ = device.why_not;
    else
      why_not_ = no_path();
  }
  void OnTestStart(const ::testing::TestInfo& test) override {
    if (!why_not_.empty() && std::string(test.test_suite_name()).rfind("NoGpu", 0) != 0) GTEST_SKIP() << why_not_;
  }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!why_not_.empty() || test.result()->Skipped() || std::getenv("FALCHION_TEST_CHILD") != nullptr) return;
    const Status done = cuda::synchronize();
    const cudaError_t left = cudaGetLastError();
    if (!done || left != cudaSuccess)
      ADD_FAILURE() << "the test left a CUDA error behind: " << (done ? cudaGetErrorString(left) : done.why);
  }

 private:
  /// Why no operation has a path on this machine, or "" when one has.
  static std::string no_path() {
    std::string why = "this build has no GPU variant";
    for (const Operation& operation : operations()) {
      if (!usable_paths(operation.name).empty()) return "";
      if (!built_paths(operation.name).empty()) why = built_paths(operation.name).front().why_not();
    }
    return why;
  }
  std::string why_not_;
};

}  // namespace
}  // namespace falchion::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new falchion::testing::Device);
  return RUN_ALL_TESTS();
}
