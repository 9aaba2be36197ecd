// src/api/plan.cpp: Plan::make validates and plans, Plan::run calls the operation's run.
#include <memory>
#include <string>
#include <utility>

#include "api/check.hpp"
#include "api/run.hpp"
#include "api/sizes.hpp"
#include "api/trace.hpp"
#include "api/validate.hpp"
#include "falchion/falchion.hpp"
#include "plan/operation.hpp"

namespace falchion {
namespace {

/// The plan has the problem even if it is refused: explain() prints it.
template <class Problem>
Status plan_for(const Problem& asked, Pass pass, const Target& target, PlanData* out, bool any_build = false) {
  const Problem problem = with_plain_dtypes(asked);
  ask(problem, pass, target, out);
  if (Status status = validate_problem(problem, pass); !status) return status;
  if (Status status = validate_target(target); !status) return status;
  out->any_build = any_build;
  return decide(out);
}

template <class Problem>
std::string explain_problem(const Problem& problem, Pass pass, const Target& target, Format format) {
  PlanData plan;
  const Status made = plan_for(problem, pass, target, &plan);
  if (made) return explain(plan, format);
  // For a GPU that this machine does not have, or that this build has no kernels for, explain() still shows what would
  // run.
  const bool about_a_gpu = names_gpu(target) || is_gpu(target.backend);
  if (made.code == Code::invalid || !about_a_gpu) return explain_refusal(plan, made, format);
  const Status refusal = plan_for(problem, pass, target, &plan, true);
  return refusal ? explain(plan, format, made) : explain_refusal(plan, refusal, format);
}

/// Plan::make. out: the plan's data.
template <class Problem>
Status make(const Problem& problem, Pass pass, const Target& target, std::shared_ptr<const PlanData>* out) noexcept
    try {
  if (out == nullptr) return {Code::invalid, "out is null"};
  out->reset();
  return make_plan(problem, pass, target, out);
} catch (...) { return caught(); }

/// Plan::run.
template <class Problem>
Status run_plan(const PlanData* plan, const OperandsOf<Problem>& operands, const Workspace& workspace,
                Stream stream) noexcept {
  if (plan == nullptr) return {Code::invalid, "the plan is empty: Plan::make has not succeeded"};
  return run<Problem>(*plan, operands, workspace, stream);
}

}  // namespace

template <class Problem>
Status make_plan(const Problem& problem, Pass pass, const Target& target, std::shared_ptr<const PlanData>* plan) {
  auto data = std::make_shared<PlanData>();
  Status status = trace::planned(*data, [&] { return plan_for(problem, pass, target, data.get()); });
  if (status) *plan = std::move(data);
  return status;
}
template Status make_plan(const Attention&, Pass, const Target&, std::shared_ptr<const PlanData>*);
template Status make_plan(const LinearAttention&, Pass, const Target&, std::shared_ptr<const PlanData>*);
template Status make_plan(const Gemm&, Pass, const Target&, std::shared_ptr<const PlanData>*);
template Status make_plan(const Norm&, Pass, const Target&, std::shared_ptr<const PlanData>*);
template Status make_plan(const Quantise&, Pass, const Target&, std::shared_ptr<const PlanData>*);

Status Plan::make(const Attention& problem, Pass pass, Target target, Plan* out) noexcept {
  return falchion::make(problem, pass, target, out == nullptr ? nullptr : &out->data_);
}
Status Plan::make(const LinearAttention& problem, Pass pass, Target target, Plan* out) noexcept {
  return falchion::make(problem, pass, target, out == nullptr ? nullptr : &out->data_);
}
Status Plan::make(const Gemm& problem, Target target, Plan* out) noexcept {
  return falchion::make(problem, Pass::forward, target, out == nullptr ? nullptr : &out->data_);
}
Status Plan::make(const Norm& problem, Target target, Plan* out) noexcept {
  return make(problem, Pass::forward, target, out);
}
Status Plan::make(const Norm& problem, Pass pass, Target target, Plan* out) noexcept {
  return falchion::make(problem, pass, target, out == nullptr ? nullptr : &out->data_);
}
Status Plan::make(const Quantise& problem, Target target, Plan* out) noexcept {
  return falchion::make(problem, Pass::forward, target, out == nullptr ? nullptr : &out->data_);
}

std::size_t Plan::workspace_bytes() const noexcept { return data_ ? data_->workspace : 0; }
Backend Plan::backend() const noexcept { return data_ ? data_->backend : Backend::best; }
std::string Plan::describe() const { return data_ ? falchion::describe(*data_) : "no plan"; }
std::string Plan::explain(Format format) const {
  if (data_) return falchion::explain(*data_, format);
  return format == Format::json ? explain_refusal({Code::invalid, "no plan"}, format) : "no plan";
}

Status Plan::run(const Operands& operands, void* workspace, std::size_t bytes, Stream stream) const noexcept {
  return run_plan<Attention>(data_.get(), operands, {workspace, bytes}, stream);
}
Status Plan::run(const LinearOperands& operands, void* workspace, std::size_t bytes, Stream stream) const noexcept {
  return run_plan<LinearAttention>(data_.get(), operands, {workspace, bytes}, stream);
}
Status Plan::run(const GemmOperands& operands, void* workspace, std::size_t bytes, Stream stream) const noexcept {
  return run_plan<Gemm>(data_.get(), operands, {workspace, bytes}, stream);
}
Status Plan::run(const NormOperands& operands, void* workspace, std::size_t bytes, Stream stream) const noexcept {
  return run_plan<Norm>(data_.get(), operands, {workspace, bytes}, stream);
}
Status Plan::run(const QuantiseOperands& operands, void* workspace, std::size_t bytes, Stream stream) const noexcept {
  return run_plan<Quantise>(data_.get(), operands, {workspace, bytes}, stream);
}

std::string explain(const Attention& problem, Pass pass, Target target, Format format) {
  return explain_problem(problem, pass, target, format);
}
std::string explain(const LinearAttention& problem, Pass pass, Target target, Format format) {
  return explain_problem(problem, pass, target, format);
}
std::string explain(const Gemm& problem, Target target, Format format) {
  return explain_problem(problem, Pass::forward, target, format);
}
std::string explain(const Norm& problem, Target target, Format format) {
  return explain_problem(problem, Pass::forward, target, format);
}
std::string explain(const Norm& problem, Pass pass, Target target, Format format) {
  return explain_problem(problem, pass, target, format);
}
std::string explain(const Quantise& problem, Target target, Format format) {
  return explain_problem(problem, Pass::forward, target, format);
}

}  // namespace falchion
