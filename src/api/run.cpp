// src/api/run.cpp: what every run checks, whatever the operation.
#include "api/run.hpp"

#include <cstdint>
#include <string>

#include "cuda/runtime.hpp"
#include "plan/text.hpp"
#include "plan/tiles.hpp"
#include "types/size.hpp"

namespace falchion {

Status check_workspace(const PlanData& plan, const void* workspace, std::size_t bytes) {
  if (plan.workspace == 0) return {};
  if (workspace == nullptr)
    return {Code::workspace, text("workspace is null, but the plan needs ", plan.workspace, " bytes")};
  if (bytes < plan.workspace)
    return {Code::workspace, text("workspace has ", bytes, " bytes, but the plan needs ", plan.workspace)};
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(workspace) % tiles::kAlign;
  if (past == 0) return {};
  return {Code::workspace, text("workspace = ", workspace, " is ", past, " past a multiple of ", tiles::kAlign,
                                ": it must be aligned to ", tiles::kAlign, " bytes")};
}

Status check_device(const PlanData& plan) {
  if (Status status = cuda::broken_context(); !status) return status;
  if (plan.gpu.ordinal >= 0) return cuda::make_context();
  const cuda::Device device = cuda::current_device();  // planned for an architecture by name
  if (device.sm == 0) return {Code::device, device.why_not};
  if (device.sm == plan.target.sm) return cuda::make_context();
  return {Code::device, text("planned for sm_", plan.target.sm, ", but ", device.name, " is sm_", device.sm)};
}

const void* data_of(const Tensor& x) {
  const auto& n = x.shape;
  return n[0] == 0 || n[1] == 0 || n[2] == 0 || n[3] == 0 ? nullptr : x.data;
}

Status unknown_place(const char* name, std::string_view asks) {
  return {Code::device, text(name, ": CUDA's driver does not say where it lies, which ", asks, " has to know")};
}

namespace {

Status misplaced(const char* name, cuda::Place place, const PlanData& plan) {
  const std::string backend = text("backend = ", falchion::name(plan.backend));
  switch (place) {
    case cuda::Place::host:
      return {Code::invalid, text(name, " lies in host memory, which ", plan.gpu.device,
                                  " cannot read: the operands of ", backend, " lie on the device")};
    case cuda::Place::other_device:
      if (!on_gpu(plan)) break;
      return {Code::invalid,
              text(name, " lies on another device, whose memory ", plan.gpu.device,
                   " may not use: no access was given by cudaDeviceEnablePeerAccess or cudaMemPoolSetAccess")};
    case cuda::Place::unknown: return unknown_place(name, backend);
    default: break;
  }
  return {Code::invalid, text(name, " lies on a GPU, where ", backend,
                              " cannot read it: plan for that GPU, or copy the operands to host memory")};
}

}  // namespace

Status check_places(const PlanData& plan, const OperandList& list, const void* workspace) {
  const bool gpu = on_gpu(plan);
  if (plan.target.trust_pointers || (!gpu && !cuda::driver_is_loaded())) return {};
  const auto check = [&](const char* name, const void* data) {
    if (data == nullptr) return Status{};
    const cuda::Place place = cuda::place_of(data);
    return (gpu ? cuda::device_can_use(place) : cuda::host_can_use(place)) ? Status{} : misplaced(name, place, plan);
  };
  for (const Operand& operand : list.tensors()) {
    if (Status status = check(operand.name, data_of(*operand.x)); !status) return status;
  }
  for (const Array& array : list.arrays()) {
    if (Status status = check(array.name, array.wanted ? array.data : nullptr); !status) return status;
  }
  return check("workspace", plan.workspace > 0 ? workspace : nullptr);
}

namespace {

/// "" where its rows begin at multiples of 16 bytes and TMA can follow its strides.
std::string why_not_aligned(const char* name, const Tensor& x) {
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(x.data) % 16;
  if (past != 0) return text(name, ".data = ", x.data, " is ", past, " past a multiple of 16 bytes");
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (x.shape[axis] <= 1) continue;
    if (x.shape[axis] > INT32_MAX)
      return text(name, ".shape[", axis, "] = ", x.shape[axis], " is over TMA's limit of ", INT32_MAX);
    const std::int64_t bytes = x.stride[axis] * size_of(x.dtype);
    const std::string stride = text(name, ".stride[", axis, "] = ", x.stride[axis], " (", bytes, " bytes) ");
    if (bytes % 16 != 0) return stride + "is no multiple of 16 bytes";
    if (x.stride[axis] < x.shape[3] || bytes >= std::int64_t{1} << 40)
      return stride +
             text("is one that TMA cannot follow: below the head dim, ", x.shape[3], ", or 2^40 bytes or more");
  }
  return "";
}

}  // namespace

Status no_variant_for(DType dtype, std::int64_t d_qk, std::int64_t d_v, const OperandList& list) {
  const std::int64_t chunk = 16 / size_of(dtype);
  std::string why;
  if (d_qk % chunk != 0) why = text("d_qk = ", d_qk, " is no multiple of ", chunk, ", 16 bytes");
  if (why.empty() && d_v % chunk != 0) why = text("d_v = ", d_v, " is no multiple of ", chunk, ", 16 bytes");
  for (const Operand& operand : list.tensors()) {
    if (why.empty() && operand.moved) why = why_not_aligned(operand.name, *operand.x);
  }
  return {Code::unsupported, text(why, ", and this build has no general variant for ", dtype)};
}

Status launched(int error) { return cuda::status_of(error, "launch"); }

}  // namespace falchion
