// tests/support/gradients.cpp: implements gradients.hpp.
#include "support/gradients.hpp"
#include "api/data_of.hpp"

#include <algorithm>
#include <array>

#include "api/validate.hpp"
#include "plan/plan_data.hpp"

namespace falchion::testing {

namespace {

constexpr std::size_t kGuard = 256;  // bytes behind the workspace

}  // namespace

Status BackwardRuns::make(const Target& target, const Attention& problem) {
  problem_ = problem;
  if (Status made = Plan::make(problem, Pass::backward, target, &plan_); !made) return made;
  if (on_gpu()) return cuda::Memory::make(plan_.workspace_bytes() + kGuard, &on_device_);
  on_host_ = std::make_unique<Workspace>(plan_.workspace_bytes());
  return {};
}

bool BackwardRuns::on_gpu() const { return is_gpu(data_of(plan_)->backend); }

Status BackwardRuns::run(const Operands& operands, const std::vector<cuda::Bytes>& whole) {
  // Operands that must be refused may have views that reach anywhere, so they are handed over as they are.
  if (on_gpu() && validate_operands(problem_, Pass::backward, operands)) return run_on_gpu(operands, whole);
  void* memory = on_gpu() ? on_device_.data() : on_host_->data();
  return plan_.run(operands, memory, plan_.workspace_bytes());
}

Status BackwardRuns::run_on_gpu(const Operands& operands, const std::vector<cuda::Bytes>& whole) {
  cuda::DeviceCopy copy;
  if (Status status = cuda::DeviceCopy::make(problem_, operands, whole, &copy); !status) return status;
  if (Status status = cuda::synchronize(); !status) return status;  // the copies are not in the plan's stream
  const std::size_t bytes = plan_.workspace_bytes();
  if (Status status = plan_.run(copy.operands(), on_device_.data(), bytes); !status) return status;
  if (Status status = copy.download(); !status) return status;
  std::array<std::byte, kGuard> behind{};
  if (Status status = cuda::copy(behind.data(), on_device_.data() + bytes, kGuard); !status) return status;
  if (std::all_of(behind.begin(), behind.end(), [](std::byte x) { return x == std::byte{0xFF}; })) return {};
  return {Code::device, "bytes behind the workspace were written"};
}

void expect_frozen_as_full(const Target& target, const std::function<Gradients(std::uint8_t)>& make) {
  BackwardRuns of_full;
  Gradients full = make(0);
  ASSERT_TRUE(of_full.make(target, full.x.problem));
  full.run(&of_full);
  for (const std::uint8_t frozen : {1, 2, 3}) {
    BackwardRuns runs;
    Gradients rest = make(frozen);
    ASSERT_TRUE(runs.make(target, rest.x.problem));
    rest.run(&runs);
    if (data_of(runs.plan())->variant == data_of(of_full.plan())->variant) {
      for_each_gradient(full, rest, expect_same);
    } else {
      EXPECT_TRUE(runs.on_gpu() && (frozen & 2) != 0) << runs.plan().describe() << of_full.plan().describe();
      expect_judged(rest, judge::GradientReference(rest.x.problem, rest.operands()));
    }
  }
}

}  // namespace falchion::testing
