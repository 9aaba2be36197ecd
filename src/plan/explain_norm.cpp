// src/plan/explain_norm.cpp: a plan of a norm, in words and facts.
#include "plan/explain.hpp"

#include <cmath>
#include <utility>

#include "base/divide.hpp"
#include "plan/constants.hpp"
#include "plan/norm.hpp"
#include "plan/operation.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"
#include "tiles/norm/sm80.hpp"

namespace falchion {
namespace {

std::string bytes(std::size_t count) { return bytes_text(static_cast<double>(count)); }

/// "(x + residual - mean) rstd (1 + weight) + bias"
std::string terms(const Norm& n) {
  const bool layer = n.kind == NormKind::layer;
  std::string out = n.residual ? "x + residual" : "x";
  if (layer) out += " - mean";
  if (layer || n.residual) out = text("(", out, ")");
  out += " rstd";
  if (n.weight) out += n.zero_centered ? " (1 + weight)" : " weight";
  if (n.bias) out += " + bias";
  for (const auto& [wanted, name] : {std::pair{n.residual_out, "residual_out"}, {n.mean, "mean"}, {n.rstd, "rstd"}})
    if (wanted) out += text("; writes ", name);
  return out;
}

/// "128 threads with up to 4 chunks of 8 numbers each, kept in registers"
std::string cut_text(const gpu::NormCut& cut, std::int64_t d) {
  std::string out = count_text(cut.threads, "thread");
  if (d % sm80::kNormChunk != 0)
    return text(out, ", which read single numbers once for each pass: d is no multiple of ", sm80::kNormChunk);
  out += text(" with ", cut.chunks == 1 ? "one chunk" : text("up to ", cut.chunks, " chunks"), " of ", sm80::kNormChunk,
              " numbers each");
  return out + (cut.kept ? ", kept in registers" : " at a time, read once for each pass");
}

}  // namespace

std::string describe_norm(const PlanData& plan) {
  const NormPlan& norm = plan.norm();
  const Norm& n = norm.problem;
  std::string out = text(plan.operation->name, " ", level_text(plan), " ", name(n.kind), " ", n.dtype);
  if (dtype_of_y(n) != n.dtype) out += text(" to ", dtype_of_y(n));
  out += text(" ", n.rows, "x", n.d);
  if (is_gpu(plan.backend)) {
    const gpu::NormCut& cut = plan.gpu.choices.front().cut_as<gpu::NormCut>();
    return text(out, " threads a row ", cut.threads, " ws ", bytes(plan.workspace));
  }
  if (plan.variant != nullptr) out += text(" threads ", plan.threads);
  return text(out, " ws ", bytes(plan.workspace));
}

Json problem_facts(const Norm& n) {
  return Json::object({{"dtype", name(n.dtype)},
                       {"dtype_y", name(n.dtype_y)},
                       {"dtype_residual", name(n.dtype_residual)},
                       {"kind", name(n.kind)},
                       {"rows", n.rows},
                       {"d", n.d},
                       {"eps", n.eps},
                       {"zero_centered", n.zero_centered},
                       {"weight", n.weight},
                       {"bias", n.bias},
                       {"residual", n.residual},
                       {"residual_out", n.residual_out},
                       {"mean", n.mean},
                       {"rstd", n.rstd},
                       {"frozen", n.frozen}});
}
Json norm_facts(const PlanData& plan) { return problem_facts(plan.norm().problem); }

void tell_norm_problem(const PlanData& plan, Story* story) {
  const Norm& n = plan.norm().problem;
  story->tell("problem",
              text("norm ", n.dtype, ": ", name(n.kind), ", rows ", n.rows, ", d ", n.d, ", y of ", dtype_of_y(n)));
  story->tell("terms", terms(n));
  const double moved = norm_bytes(n);
  story->tell("work", text(bytes_text(moved), " if each tensor moves once; weight and bias count as one row"),
              {{"work", Json::object({{"bytes", moved}})}});
}

void tell_norm(const PlanData& plan, Story* story) {
  const NormPlan& norm = plan.norm();
  const Norm& n = norm.problem;
  if (plan.variant == nullptr) return story->tell("workspace", bytes(plan.workspace));
  if (is_gpu(plan.backend)) {
    const gpu::NormCut& cut = plan.gpu.choices.front().cut_as<gpu::NormCut>();
    story->tell("row", cut_text(cut, n.d),
                {{"row", Json::object({{"threads", cut.threads}, {"chunks", cut.chunks}, {"kept", cut.kept}})}});
    const double us = std::round(10 * (tiles::kNormLaunch + norm_bytes(n) / norm.rate * 1e6)) / 10;
    story->tell("time",
                text("some ", us, " us: ", tiles::kNormLaunch, " us for the launch, and the bytes at ",
                     scaled_text(norm.rate, "B/s"), ", which is ", 100 * tiles::kNormRate, " % of the memory's rate"),
                {{"estimate", Json::object({{"microseconds", us}, {"bytes_per_second", norm.rate}})}});
    return story->tell("workspace", bytes(plan.workspace));
  }
  story->tell("items", text(count_text(plan.items, "item"), " of ", count_text(norm.item, "row")),
              {{"items", plan.items}});
  const bool callers_pool = plan.target.executor.parallel_for != nullptr;
  story->tell("threads", text(plan.threads, callers_pool ? " of the caller's pool" : ""),
              {{"threads", Json::object({{"count", plan.threads}, {"callers_pool", callers_pool}})}});
  story->tell("workspace", text(bytes(plan.workspace), ": scratch ", plan.threads, " x ", bytes(norm.scratch)),
              {{"memory", Json::object({{"scratch_a_thread", norm.scratch}})}});
}

}  // namespace falchion
