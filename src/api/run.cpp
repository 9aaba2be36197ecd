// src/api/run.cpp: what every run checks, whatever the operation.
#include "api/run.hpp"

#include <cstdint>

#include "gpu/runtime.hpp"
#include "plan/text.hpp"
#include "plan/tiles.hpp"

namespace falchion {

Status check_workspace(const PlanData& plan, const void* workspace, std::size_t bytes) {
  if (plan.workspace == 0) return {};
  if (workspace == nullptr)
    return {Code::workspace, text("workspace is null, the plan needs ", plan.workspace, " bytes")};
  if (bytes < plan.workspace)
    return {Code::workspace, text("workspace has ", bytes, " bytes, the plan needs ", plan.workspace)};
  if (reinterpret_cast<std::uintptr_t>(workspace) % tiles::kAlign != 0) {
    return {Code::workspace, text("workspace is not aligned to ", tiles::kAlign, " bytes")};
  }
  return {};
}

Status check_device(const PlanData& plan) {
  if (Status status = gpu::pending_error(); !status) return status;
  if (plan.gpu.ordinal >= 0) {
    const int current = gpu::current_ordinal();
    if (current == plan.gpu.ordinal) return {};
    return {Code::device, text("planned on CUDA device ", plan.gpu.ordinal, ", but device ", current, " is current")};
  }
  const gpu::Device device = gpu::current_device();  // planned for an architecture by name
  if (device.sm == 0) return {Code::device, device.why_not};
  if (device.sm == plan.target.sm) return {};
  return {Code::device, text("planned for sm_", plan.target.sm, ", but ", device.name, " is sm_", device.sm)};
}

const void* data_of(const Tensor& x) {
  const auto& n = x.shape;
  return n[0] == 0 || n[1] == 0 || n[2] == 0 || n[3] == 0 ? nullptr : x.data;
}

Status check_on_device(const PlanData& plan, std::span<const Pointer> pointers) {
  for (const Pointer& pointer : pointers) {
    if (pointer.data == nullptr) continue;
    const gpu::Place place = gpu::place_of(pointer.data);
    if (place == gpu::Place::here) continue;
    return {
        Code::invalid,
        text(pointer.name, place == gpu::Place::host ? " lies in host memory" : " lies on another device", ", which ",
             plan.gpu.device, " cannot read: the operands of backend = ", name(plan.backend), " lie on the device")};
  }
  return {};
}

Status launched(int error) {
  return error == 0 ? Status{} : Status{Code::device, text("launch: ", gpu::error_text(error))};
}

}  // namespace falchion
