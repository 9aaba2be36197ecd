// src/api/run.cpp: what every run checks, and in which order, whatever the operation; and the table of runners.
#include "api/run.hpp"

#include <cstdint>
#include <string>

#include "api/runner.hpp"
#include "api/trace.hpp"
#include "base/size.hpp"
#include "plan/operation.hpp"
#include "plan/text.hpp"
#include "plan/tiles.hpp"
#include "runtime/runtime.hpp"

namespace falchion {

const void* data_of(const Tensor& x) { return is_empty(x) ? nullptr : x.data; }

Status unknown_place(const char* name, std::string_view asks) {
  return {Code::device, text(name, ": CUDA's driver does not say where it lies, which ", asks, " has to know")};
}

namespace {

/// Is it there, large enough, aligned?
Status check_workspace(const PlanData& plan, const Workspace& workspace) {
  if (plan.workspace == 0) return {};
  if (workspace.data == nullptr)
    return {Code::workspace, text("workspace is null, but the plan needs ", plan.workspace, " bytes")};
  if (workspace.bytes < plan.workspace)
    return {Code::workspace, text("workspace has ", workspace.bytes, " bytes, but the plan needs ", plan.workspace)};
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(workspace.data) % tiles::kAlign;
  if (past == 0) return {};
  return {Code::workspace, text("workspace = ", workspace.data, " is ", past, " past a multiple of ", tiles::kAlign,
                                ": it must be aligned to ", tiles::kAlign, " bytes")};
}

/// Is the current device, which the run has made current, one that was planned for, and has nothing broken its context
/// as far as is known?
Status check_device(const PlanData& plan) {
  if (Status status = cuda::broken_context(); !status) return status;
  if (plan.gpu.ordinal >= 0) return cuda::make_context();
  const cuda::Device device = cuda::current_device();  // planned for an architecture by name
  if (device.sm == 0) return {Code::device, device.why_not};
  if (device.sm == plan.target.sm) return cuda::make_context();
  return {Code::device, text("planned for sm_", plan.target.sm, ", but ", device.name, " is sm_", device.sm)};
}

Status misplaced(const char* name, cuda::Place place, const PlanData& plan) {
  const std::string backend = text("backend = ", falchion::name(plan.backend));
  switch (place) {
    case cuda::Place::host:
      return {Code::invalid, text(name, " lies in host memory, which ", plan.gpu.device,
                                  " cannot read: the operands of ", backend, " lie on the device")};
    case cuda::Place::other_device:
      if (!is_gpu(plan.backend)) break;
      return {Code::invalid,
              text(name, " lies on another device, whose memory ", plan.gpu.device,
                   " may not use: no access was given by cudaDeviceEnablePeerAccess or cudaMemPoolSetAccess")};
    case cuda::Place::unknown: return unknown_place(name, backend);
    default: break;
  }
  return {Code::invalid, text(name, " lies on a GPU, where ", backend,
                              " cannot read it: plan for that GPU, or copy the operands to host memory")};
}

/// Does each of them lie where the plan's backend can use it? In a process that uses CUDA that is asked of its driver
/// for each pointer (some 0.2 us), for plans of the host too. The workspace is asked too.
Status check_places(const PlanData& plan, const OperandList& list, const Workspace& workspace) {
  const bool gpu = is_gpu(plan.backend);
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
  return check("workspace", plan.workspace > 0 ? workspace.data : nullptr);
}

/// "" where its rows begin at multiples of 16 bytes and have no gaps between their elements and, where the kernel loads
/// with TMA, TMA can follow its strides.
std::string why_not_aligned(const char* name, const Tensor& x, bool with_tma) {
  if (x.shape[3] > 1 && x.stride[3] != 1)  // grad_o may have any
    return text(name, ".stride[3] = ", x.stride[3], ": the last axis is not contiguous");
  const std::int64_t chunk = 16 / size_of(x.dtype);
  if (x.shape[3] % chunk != 0)
    return text(name, ".shape[3] = ", x.shape[3], " is no multiple of ", chunk, ", 16 bytes");
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(x.data) % 16;
  if (past != 0) return text(name, ".data = ", x.data, " is ", past, " past a multiple of 16 bytes");
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (x.shape[axis] <= 1) continue;
    if (with_tma && x.shape[axis] > INT32_MAX)
      return text(name, ".shape[", axis, "] = ", x.shape[axis], " is over TMA's limit of ", INT32_MAX);
    const std::int64_t bytes = x.stride[axis] * size_of(x.dtype);
    const std::string stride = text(name, ".stride[", axis, "] = ", x.stride[axis], " (", bytes, " bytes) ");
    if (bytes % 16 != 0) return stride + "is no multiple of 16 bytes";
    if (with_tma && (x.stride[axis] < x.shape[3] || bytes >= std::int64_t{1} << 40))
      return stride +
             text("is one that TMA cannot follow: below the head dim, ", x.shape[3], ", or 2^40 bytes or more");
  }
  return "";
}

/// Why the operands need a variant for unaligned ones, which this build does not have: the first tensor whose rows do
/// not begin at multiples of 16 bytes, or that TMA cannot follow, with the number that says so.
Status no_variant_for(const PlanData& plan, const OperandList& list) {
  std::string why;
  for (const Operand& operand : list.tensors()) {
    if (why.empty() && operand.moved) why = why_not_aligned(operand.name, *operand.x, plan.backend == Backend::sm90);
  }
  const DType dtype = plan.operation->dtype(plan);
  return {Code::unsupported, text(why, ", and this build has no general variant for ", dtype)};
}

template <class Operands_>
Status run_on_gpu(const Runner<Operands_>& runner, const PlanData& plan, const Operands_& x, const OperandList& list,
                  const Workspace& workspace, Stream stream) {
  const cuda::OnDevice device(plan.gpu.ordinal);
  if (!device.status()) return device.status();
  if (Status status = check_device(plan); !status) return status;
  if (Status status = check_workspace(plan, workspace); !status) return status;
  if (runner.nothing_to_do(plan, x)) return {};
  if (Status status = runner.check_totals(plan, x); !status) return status;
  if (Status status = check_places(plan, list, workspace); !status) return status;
  const GpuChoice choice = runner.choose(plan, x);
  if (choice.variant == nullptr) return no_variant_for(plan, list);
  return cuda::status_of(runner.launch(plan, choice, x, workspace.data, stream), "launch");
}

template <class Operands_>
Status run_on_host(const Runner<Operands_>& runner, const PlanData& plan, const Operands_& x, const OperandList& list,
                   const Workspace& workspace) {
  if (Status status = check_workspace(plan, workspace); !status) return status;
  if (runner.nothing_to_do(plan, x)) return {};
  if (Status status = check_places(plan, list, workspace); !status) return status;
  if (Status status = runner.check_lengths(plan, x); !status) return status;
  const auto run = plan.backend == Backend::cpu ? runner.run_on_cpu : runner.run_on_ref;
  run(plan, x, workspace.data);
  return {};
}

template <class Operands_>
Status run_with(const PlanData& plan, const Operands_& x, const Workspace& workspace, Stream stream) {
  const Runner<Operands_>* runner = runner_of<Operands_>(*plan.operation);
  if (runner == nullptr) {
    return {Code::invalid,
            text("the plan is one of ", plan.operation->name, ", so it takes ", plan.operation->operands)};
  }
  const OperandList list = runner->operands(plan, x);
  const auto run = [&]() -> Status {
    if (Status status = runner->validate(plan, x, list); !status) return status;
    if (trace::wanted().dump != nullptr) trace::dump(plan, x, list);
    return is_gpu(plan.backend) ? run_on_gpu(*runner, plan, x, list, workspace, stream)
                                : run_on_host(*runner, plan, x, list, workspace);
  };
  if (!trace::wanted().any()) return run();
  const trace::Range range(describe(plan));
  const auto start = trace::Clock::now();
  Status status = run();
  trace::tell_run(plan, x, list, status, trace::microseconds_since(start));
  return status;
}

template <class Operands_, std::size_t n>
const Runner<Operands_>* find(const Runner<Operands_>* const (&all)[n], const Operation& operation) {
  for (const Runner<Operands_>* runner : all) {
    if (same(runner->operation, operation.name)) return runner;
  }
  return nullptr;
}

}  // namespace

template <>
const Runner<Operands>* runner_of(const Operation& operation) {
  static constexpr const Runner<Operands>* kAll[] = {&kRunAttentionForward, &kRunAttentionBackward};
  return find(kAll, operation);
}
template <>
const Runner<LinearOperands>* runner_of(const Operation& operation) {
  static constexpr const Runner<LinearOperands>* kAll[] = {&kRunLinearAttentionForward, &kRunLinearAttentionBackward};
  return find(kAll, operation);
}
template <>
const Runner<GemmOperands>* runner_of(const Operation& operation) {
  static constexpr const Runner<GemmOperands>* kAll[] = {&kRunGemm};
  return find(kAll, operation);
}
template <>
const Runner<NormOperands>* runner_of(const Operation& operation) {
  static constexpr const Runner<NormOperands>* kAll[] = {&kRunNorm};
  return find(kAll, operation);
}

Status run(const PlanData& plan, const Operands& x, const Workspace& workspace, Stream stream) {
  return run_with(plan, x, workspace, stream);
}
Status run(const PlanData& plan, const LinearOperands& x, const Workspace& workspace, Stream stream) {
  return run_with(plan, x, workspace, stream);
}
Status run(const PlanData& plan, const GemmOperands& x, const Workspace& workspace, Stream stream) {
  return run_with(plan, x, workspace, stream);
}
Status run(const PlanData& plan, const NormOperands& x, const Workspace& workspace, Stream stream) {
  return run_with(plan, x, workspace, stream);
}

}  // namespace falchion
