// tests/support/gradients.cpp: implements gradients.hpp.
#include "support/gradients.hpp"

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

bool BackwardRuns::on_gpu() const { return is_gpu(plan_.data()->backend); }

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

}  // namespace falchion::testing
