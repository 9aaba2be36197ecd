// src/plan/explain_norm_backward.cpp: a plan of a norm's backward pass, in words and facts.
#include <cmath>

#include "plan/constants.hpp"
#include "plan/explain.hpp"
#include "plan/norm.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"
#include "ref/norm_backward.hpp"
#include "tiles/norm_backward/sm80.hpp"

namespace falchion {
namespace {

std::string bytes(std::size_t count) { return bytes_text(static_cast<double>(count)); }

/// "grad_x, grad_weight, grad_bias"
std::string gradients(const Norm& n) {
  std::string out;
  const auto add = [&out](bool wanted, const char* name) {
    if (wanted) out += text(out.empty() ? "" : ", ", name);
  };
  add(ref::wants_grad_x(n), n.residual_out ? "grad_x with grad_residual_out added" : "grad_x");
  add(ref::wants_grad_weight(n), "grad_weight");
  add(n.bias, "grad_bias");
  return out.empty() ? "none" : out;
}

bool has_sums(const Norm& n) { return ref::wants_grad_weight(n) || n.bias; }

/// "128 threads with up to 4 chunks of 8 numbers each, 3 rows loaded ahead"
std::string cut_text(const gpu::NormBackwardCut& cut) {
  std::string out = count_text(cut.threads, "thread");
  if (cut.chunks == 0) return out + ", which read the row once for each pass and keep its sums in the workspace";
  out += text(" with up to ", cut.chunks, " chunks of ", sm80::kGradChunk, " numbers each");
  return out + (cut.whole ? text(", ", count_text(cut.stages, "row"), " loaded ahead") : ", read once for each pass");
}

}  // namespace

std::string describe_norm_backward(const PlanData& plan) {
  const NormPlan& norm = plan.norm();
  const Norm& n = norm.problem;
  std::string out =
      text(plan.operation->name, " ", level_text(plan), " ", name(n.kind), " ", n.dtype, " ", n.rows, "x", n.d);
  if (is_gpu(plan.backend))
    out += text(" threads a row ", plan.gpu.choices.front().cut_as<gpu::NormBackwardCut>().threads);
  else if (plan.variant != nullptr)
    out += text(" threads ", plan.threads);
  if (plan.variant != nullptr) out += text(" parts ", norm.parts);
  return text(out, " ws ", bytes(plan.workspace));
}

void tell_norm_backward_problem(const PlanData& plan, Story* story) {
  const Norm& n = plan.norm().problem;
  story->tell("problem", text("backward pass of norm ", n.dtype, ": ", name(n.kind), ", rows ", n.rows, ", d ", n.d,
                              ", grad_y of ", dtype_of_y(n)));
  story->tell("gradients", gradients(n));
  const double moved = norm_backward_bytes(n);
  story->tell("work", text(bytes_text(moved), " if each tensor moves once; weight and its gradients count as one row"),
              {{"work", Json::object({{"bytes", moved}})}});
}

void tell_norm_backward(const PlanData& plan, Story* story) {
  const NormPlan& norm = plan.norm();
  if (plan.variant == nullptr) return story->tell("workspace", bytes(plan.workspace));
  const auto tell_parts = [&](const char* of) {
    story->tell("parts",
                text("up to ", norm.parts, " of the rows, each with its own sums of grad_weight and grad_bias", of),
                {{"parts", norm.parts}});
  };
  if (is_gpu(plan.backend)) {
    const auto& cut = plan.gpu.choices.front().cut_as<gpu::NormBackwardCut>();
    story->tell(
        "row", cut_text(cut),
        {{"row",
          Json::object(
              {{"threads", cut.threads}, {"chunks", cut.chunks}, {"kept", cut.chunks > 0}, {"stages", cut.stages}})}});
    tell_parts(": a CTA's");
    // A second kernel adds the parts' sums, if there are any.
    const int launches = norm.parts > 1 && has_sums(norm.problem) ? 2 : 1;
    const double us =
        std::round(10 * (launches * tiles::kNormLaunch + norm_backward_bytes(norm.problem) / norm.rate * 1e6)) / 10;
    story->tell("time",
                text("some ", us, " us: ", tiles::kNormLaunch, " us for ",
                     launches == 2 ? "each of two launches" : "a launch", ", and the bytes at ",
                     scaled_text(norm.rate, "B/s"), ", which is ", 100 * tiles::kNormRate, " % of the memory's rate"),
                {{"estimate", Json::object({{"microseconds", us}, {"bytes_per_second", norm.rate}})}});
    return story->tell("workspace", text(bytes(plan.workspace), " for the sums"));
  }
  tell_parts("");
  story->note({{"items", plan.items}});
  const bool callers_pool = plan.target.executor.parallel_for != nullptr;
  story->tell("threads", text(plan.threads, callers_pool ? " of the caller's pool" : ""),
              {{"threads", Json::object({{"count", plan.threads}, {"callers_pool", callers_pool}})}});
  story->tell("workspace",
              text(bytes(plan.workspace), ": scratch ", plan.threads, " x ", bytes(norm.scratch), ", and the sums"),
              {{"memory", Json::object({{"scratch_a_thread", norm.scratch}})}});
}

}  // namespace falchion
