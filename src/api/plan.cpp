// src/api/plan.cpp: Plan::make asks validate and the planner, Plan::run validates the operands and hands them over.
#include <cstdint>
#include <utility>

#include "api/check.hpp"
#include "api/validate.hpp"
#include "falchion/falchion.hpp"
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

/// The workspace holds b * s_k packed keys. Single sequences may be longer than s_k, all of them together may not: the
/// plan could not hold them, and keys are never dropped. (Lengths lie on the host here; kernels clamp what else is
/// wrong.)
Status check_total(const Attention& problem, const Operands& x) {
  if (!problem.packed || problem.b == 0 || x.cu_seqlens_k[problem.b] <= problem.b * problem.s_k) return {};
  return {Code::invalid, text("cu_seqlens_k[", problem.b, "] = ", x.cu_seqlens_k[problem.b],
                              " is over b * s_k = ", problem.b * problem.s_k, ": s_k is the longest length allowed")};
}

Status run_plan(const PlanData& plan, const Operands& operands, void* workspace, std::size_t bytes) {
  if (Status status = validate_operands(plan.problem, operands); !status) return status;
  if (Status status = check_total(plan.problem, operands); !status) return status;
  if (Status status = check_workspace(plan, workspace, bytes); !status) return status;
  const Tensor& o = operands.o;
  if (o.shape[0] == 0 || o.shape[1] == 0 || o.shape[2] == 0 || plan.problem.b == 0)
    return {};  // no row: nothing to write
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

Status Plan::run(const Operands& operands, void* workspace, std::size_t workspace_bytes, Stream) const noexcept try {
  if (!data_) return {Code::invalid, "the plan is empty: Plan::make has not succeeded"};
  return run_plan(*data_, operands, workspace, workspace_bytes);
} catch (...) { return caught(); }

std::string explain(const Attention& problem, Pass pass, Target target) {
  PlanData plan;
  const Status status = plan_for(problem, pass, target, &plan);
  return status ? explain(plan) : explain(plan, status);
}

}  // namespace falchion
