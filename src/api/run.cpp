// src/api/run.cpp: the checks of every run, in the same order for all operations.
#include "api/run.hpp"

#include <cstdint>
#include <string>

#include "api/check.hpp"
#include "api/operand_list.hpp"
#include "api/trace.hpp"
#include "base/size.hpp"
#include "plan/constants.hpp"
#include "plan/operation.hpp"
#include "plan/text.hpp"
#include "runtime/runtime.hpp"

namespace falchion {

const void* data_of(const Tensor& x) { return is_empty(x) ? nullptr : x.data; }

Status unknown_place(const char* name, std::string_view asks) {
  return {Code::device, text(name, ": CUDA's driver does not say where it lies, which ", asks, " has to know")};
}

namespace {

/// Checks that it is present, large enough and aligned.
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

/// Checks that the current device (set by the run) is one that was planned for, and that its context is not known to be
/// broken.
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

/// Checks that the plan's backend can use each of them, and the workspace, at its place. In a process that uses CUDA
/// this queries its driver for each pointer (some 0.2 us), for plans of the host too.
Status check_places(const PlanData& plan, const OperandList& list, const Workspace& workspace, const Known& known) {
  const bool gpu = is_gpu(plan.backend);
  if (plan.target.trust_pointers || (!gpu && !cuda::driver_is_loaded())) return {};
  const auto check = [&](const char* name, const void* data) {
    if (data == nullptr) return Status{};
    const cuda::Place place = data == known.data ? known.place : cuda::place_of(data);
    return (gpu ? cuda::device_can_use(place) : cuda::host_can_use(place)) ? Status{} : misplaced(name, place, plan);
  };
  for (const Operand& operand : list.tensors()) {
    if (Status status = check(operand.name, data_of(*operand.x)); !status) return status;
  }
  for (const Array& array : list.arrays()) {
    if (Status status = check(array.name, array.wanted ? array.data : nullptr); !status) return status;
  }
  const bool asks_workspace = plan.workspace > 0 && !known.workspace_is_in_place;
  return check("workspace", asks_workspace ? workspace.data : nullptr);
}

/// "" if its rows begin at multiples of 16 bytes and have no gaps between their elements and, for a kernel that loads
/// with TMA, TMA accepts its strides.
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
/// not begin at multiples of 16 bytes, or that TMA cannot load, with the offending number.
Status no_variant_for(const PlanData& plan, const OperandList& list) {
  std::string why;
  for (const Operand& operand : list.tensors()) {
    if (why.empty() && operand.moved) why = why_not_aligned(operand.name, *operand.x, plan.backend == Backend::sm90);
  }
  if (why.empty()) why = "the operands meet the conditions of no choice of the plan, which explain() lists";
  const DType dtype = plan.operation->dtype(plan);
  return {Code::unsupported, text(why, ", and this build has no general variant for ", dtype)};
}

template <class Problem>
Status run_on_gpu(const OperationOf<Problem>& operation, const PlanData& plan, const OperandsOf<Problem>& x,
                  const OperandList& list, const Workspace& workspace, Stream stream, const Known& known) {
  const cuda::OnDevice device(known.device_is_current ? -1 : plan.gpu.ordinal);
  if (!device.status()) return device.status();
  if (Status status = check_device(plan); !status) return status;
  if (Status status = check_workspace(plan, workspace); !status) return status;
  if (operation.nothing_to_do(plan, x)) return {};
  const auto layout = operation.layout(plan, x);
  const Choice* taken = first_that_fits(plan.gpu.choices, layout.met);
  if (Status status = operation.check_totals(plan, x, taken); !status) return status;
  if (Status status = check_places(plan, list, workspace, known); !status) return status;
  if (taken == nullptr) return no_variant_for(plan, list);
  return cuda::status_of(operation.launch(plan, *taken, layout, x, workspace.data, stream), "launch");
}

template <class Problem>
Status run_on_host(const OperationOf<Problem>& operation, const PlanData& plan, const OperandsOf<Problem>& x,
                   const OperandList& list, const Workspace& workspace, const Known& known) {
  if (Status status = check_workspace(plan, workspace); !status) return status;
  if (operation.nothing_to_do(plan, x)) return {};
  if (Status status = check_places(plan, list, workspace, known); !status) return status;
  if (Status status = operation.check_lengths(plan, x); !status) return status;
  const auto run = plan.backend == Backend::cpu ? operation.run_on_cpu : operation.run_on_ref;
  run(plan, x, workspace.data);
  return {};
}

}  // namespace

template <class Problem>
Status run(const PlanData& plan, const OperandsOf<Problem>& x, const Workspace& workspace, Stream stream,
           const Known& known) noexcept try {
  const OperationOf<Problem>* operation = operation_in<Problem>(plan);
  if (operation == nullptr)
    return {Code::invalid, text("the plan is one of ", plan.operation->name, ", so it takes ", plan.operation->takes)};
  const Problem& problem = decided_in<Problem>(plan).problem;
  const OperandList list = operation->operands(problem, plan.pass, x);
  const auto run = [&]() -> Status {
    if (Status status = operation->validate(problem, x, list); !status) return status;
    if (trace::wanted().dump != nullptr) trace::dump(plan, x, list);
    return is_gpu(plan.backend) ? run_on_gpu(*operation, plan, x, list, workspace, stream, known)
                                : run_on_host(*operation, plan, x, list, workspace, known);
  };
  if (!trace::wanted().any()) return run();
  const trace::Range range(describe(plan));
  const auto start = trace::Clock::now();
  Status status = run();
  trace::tell_run(plan, x, list, status, trace::microseconds_since(start));
  return status;
} catch (...) { return caught(); }

template Status run<Attention>(const PlanData&, const Operands&, const Workspace&, Stream, const Known&) noexcept;
template Status run<LinearAttention>(const PlanData&, const LinearOperands&, const Workspace&, Stream,
                                     const Known&) noexcept;
template Status run<Gemm>(const PlanData&, const GemmOperands&, const Workspace&, Stream, const Known&) noexcept;
template Status run<Norm>(const PlanData&, const NormOperands&, const Workspace&, Stream, const Known&) noexcept;
template Status run<Quantise>(const PlanData&, const QuantiseOperands&, const Workspace&, Stream,
                              const Known&) noexcept;

}  // namespace falchion
