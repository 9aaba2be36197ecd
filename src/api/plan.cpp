// src/api/plan.cpp: Plan::make asks validate and the planner, Plan::run validates the operands and hands them over.
#include <cstdint>
#include <utility>

#include "api/check.hpp"
#include "api/validate.hpp"
#include "falchion/falchion.hpp"
#include "gpu/runtime.hpp"
#include "plan/attention_gpu.hpp"
#include "plan/attention_launch.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "plan/tiles.hpp"
#include "ref/attention_forward.hpp"

namespace falchion {
namespace {

Status plan_for(const Attention& problem, Pass pass, const Target& target, PlanData* out) {
  *out = PlanData{};
  out->problem = problem, out->pass = pass, out->target = target;
  if (Status status = validate_problem(problem, pass); !status) return status;
  if (Status status = validate_target(target); !status) return status;
  return plan_attention(problem, pass, target, out);
}

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

/// CPU: the workspace holds b * s_k packed keys. Single sequences may be longer than s_k, all of them together may not:
/// the plan could not hold them, and keys are never dropped. (Lengths lie on the host here; kernels clamp what else is
/// wrong.)
Status check_total(const Attention& problem, const Operands& x) {
  if (!problem.packed || problem.b == 0 || x.cu_seqlens_k[problem.b] <= problem.b * problem.s_k) return {};
  return {Code::invalid, text("cu_seqlens_k[", problem.b, "] = ", x.cu_seqlens_k[problem.b],
                              " is over b * s_k = ", problem.b * problem.s_k, ": s_k is the longest length allowed")};
}

Status check_on_device(const PlanData& plan, const Operands& x, const void* workspace) {
  const auto data = [](const Tensor& t) {  // of an empty tensor nothing is read
    const auto& n = t.shape;
    return n[0] == 0 || n[1] == 0 || n[2] == 0 || n[3] == 0 ? nullptr : t.data;
  };
  const struct {
    const char* name;
    const void* data;
  } pointers[] = {{"q", data(x.q)},
                  {"k", data(x.k)},
                  {"v", data(x.v)},
                  {"o", data(x.o)},
                  {"lse", data(x.lse)},
                  {"row_max", data(x.row_max)},
                  {"probabilities", data(x.probabilities)},
                  {"bias", data(x.bias)},
                  {"mask", data(x.mask)},
                  {"alibi", x.alibi},
                  {"cu_seqlens_q", x.cu_seqlens_q},
                  {"cu_seqlens_k", x.cu_seqlens_k},
                  {"used_q", x.used_q},
                  {"used_k", x.used_k},
                  {"workspace", workspace}};
  for (const auto& pointer : pointers) {
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

Status launch_on_gpu(const PlanData& plan, const Operands& operands, void* workspace, Stream stream) {
  const auto [row, aligned] = gpu_row(plan, operands);
  if (row == nullptr) {
    return {Code::unsupported,
            text(aligned ? "q, k or v has a stride that TMA cannot follow (below the head dim, 2^40 bytes or more)"
                         : "q, k, v or o is not 16-byte aligned (pointer, strides, head dim)",
                 ", and this build has no general row for ", name(plan.problem.dtype))};
  }
  const gpu::AttentionArgs args = to_gpu_args(plan, operands, workspace, row->gpu->rows, aligned);
  int error = row->gpu->launch(args, stream);
  if (error == 0 && plan.problem.probabilities) error = row->gpu->probabilities(args, stream);
  return error == 0 ? Status{} : Status{Code::device, text("launch: ", gpu::error_text(error))};
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

/// Kernels count the rows of a sequence in 31 bits; lengths that lie on the device are at most the totals.
Status check_totals(const PlanData& plan, const Operands& x) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (!plan.problem.packed) return {};
  if (x.q.shape[1] * plan.gpu.group <= kMost && x.k.shape[1] <= kMost) return {};
  return {Code::invalid, text("packed: q.shape[1] = ", x.q.shape[1], " rows of ", plan.gpu.group,
                              " heads and k.shape[1] = ", x.k.shape[1], " are to be at most ", kMost)};
}

bool nothing_to_write(const PlanData& plan, const Operands& x) {
  return x.o.shape[0] == 0 || x.o.shape[1] == 0 || x.o.shape[2] == 0 || plan.problem.b == 0;
}

Status run_on_gpu(const PlanData& plan, const Operands& operands, void* workspace, std::size_t bytes, Stream stream) {
  if (Status status = check_device(plan); !status) return status;
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  if (nothing_to_write(plan, operands)) return {};
  if (Status status = check_totals(plan, operands); !status) return status;
  if (Status status = check_on_device(plan, operands, plan.workspace > 0 ? workspace : nullptr); !status) return status;
  return launch_on_gpu(plan, operands, workspace, stream);
}

Status run_plan(const PlanData& plan, const Operands& operands, void* workspace, std::size_t bytes, Stream stream) {
  if (Status status = validate_operands(plan.problem, operands); !status) return status;
  if (plan.backend == Backend::sm80 || plan.backend == Backend::sm90)
    return run_on_gpu(plan, operands, workspace, bytes, stream);
  if (Status status = check_total(plan.problem, operands); !status) return status;
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  if (nothing_to_write(plan, operands)) return {};
  if (plan.backend == Backend::ref) {
    ref::attention_forward(plan.problem, operands, {});
  } else {
    plan.variant->cpu->run(to_args(plan, &operands, workspace));
  }
  return {};
}

}  // namespace

Status Plan::make(const Attention& problem, Pass pass, Target target, Plan* out) noexcept try {
  if (out == nullptr) return {Code::invalid, "out is null"};
  out->data_.reset();
  auto data = std::make_shared<PlanData>();
  Status status = plan_for(problem, pass, target, data.get());
  if (status) out->data_ = std::move(data);
  return status;
} catch (...) { return caught(); }

std::size_t Plan::workspace_bytes() const noexcept { return data_ ? data_->workspace : 0; }
std::string Plan::describe() const { return data_ ? falchion::describe(*data_) : "no plan"; }
std::string Plan::explain() const { return data_ ? falchion::explain(*data_) : "no plan"; }

Status Plan::run(const Operands& operands, void* workspace, std::size_t workspace_bytes, Stream stream) const noexcept
    try {
  if (!data_) return {Code::invalid, "the plan is empty: Plan::make has not succeeded"};
  return run_plan(*data_, operands, workspace, workspace_bytes, stream);
} catch (...) { return caught(); }

std::string explain(const Attention& problem, Pass pass, Target target) {
  PlanData plan;
  const Status status = plan_for(problem, pass, target, &plan);
  return status ? explain(plan) : explain(plan, status);
}

}  // namespace falchion
