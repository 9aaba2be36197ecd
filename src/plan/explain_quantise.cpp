// src/plan/explain_quantise.cpp: the text forms of a plan of Quantise.
#include <cmath>
#include <cstdint>
#include <string>

#include "base/names.hpp"
#include "plan/constants.hpp"
#include "plan/explain.hpp"
#include "plan/operation.hpp"
#include "plan/quantise.hpp"
#include "plan/text.hpp"
#include "plan/work.hpp"
#include "policy/quantise.hpp"

namespace falchion {
namespace {

std::string bytes(std::size_t count) { return bytes_text(static_cast<double>(count)); }

/// "(x - mean) rotated in blocks of 32 / scale; a scale for 128 tokens of a head, a power of two"
std::string terms(const Quantise& q) {
  std::string out = q.smooth ? "(x - mean)" : "x";
  if (q.rotate) out += text(" rotated in blocks of ", rotation_size(q.d));
  out += " / scale; ";
  out += q.rows == 0 ? "a scale for a head" : text("a scale for ", count_text(q.rows, "token"), " of a head");
  return out + (q.powers_of_two ? ", a power of two" : q.scale_given ? ", given" : "");
}

/// "64 rows: 256 threads with up to 4 chunks of 8 numbers"
std::string cut_text(const gpu::QuantiseCut& cut) {
  return text(count_text(cut.rows, "row"), ": ", count_text(cut.threads, "thread"), " with up to ",
              count_text(cut.chunks, "chunk"), " of 8 numbers each",
              cut.kept ? "" : "; x is read once for the scales and once for y");
}

}  // namespace

std::string describe_quantise(const PlanData& plan) {
  const Quantise& q = plan.quantise().problem;
  return text(plan.operation->name, " ", level_text(plan), " ", q.dtype, " to ", q.dtype_y, " ", q.b, "x", q.s, "x",
              q.h, "x", q.d, " rows ", q.rows, " ws ", bytes(plan.workspace));
}

Json problem_facts(const Quantise& q) {
  return Json::object({{"dtype", name(q.dtype)},
                       {"dtype_y", name(q.dtype_y)},
                       {"b", q.b},
                       {"s", q.s},
                       {"h", q.h},
                       {"d", q.d},
                       {"rows", q.rows},
                       {"scale_given", q.scale_given},
                       {"powers_of_two", q.powers_of_two},
                       {"smooth", q.smooth},
                       {"mean_given", q.mean_given},
                       {"rotate", q.rotate}});
}
Json quantise_facts(const PlanData& plan) { return problem_facts(plan.quantise().problem); }

void tell_quantise_problem(const PlanData& plan, Story* story) {
  const Quantise& q = plan.quantise().problem;
  story->tell("problem",
              text("quantise ", q.dtype, " to ", q.dtype_y, ": b ", q.b, ", s ", q.s, ", h ", q.h, ", d ", q.d));
  story->tell("terms", terms(q));
  const double moved = quantise_bytes(q);
  story->tell("work", text(bytes_text(moved), " if each tensor moves once"),
              {{"work", Json::object({{"bytes", moved}})}});
}

void tell_quantise(const PlanData& plan, Story* story) {
  const QuantisePlan& own = plan.quantise();
  if (is_gpu(plan.backend) && plan.variant != nullptr) {
    const gpu::QuantiseCut& cut = plan.gpu.choices.front().cut_as<gpu::QuantiseCut>();
    story->tell(
        "piece", cut_text(cut),
        {{"piece",
          Json::object({{"rows", cut.rows}, {"threads", cut.threads}, {"chunks", cut.chunks}, {"kept", cut.kept}})}});
    const double us = std::round(10 * (tiles::kNormLaunch + quantise_bytes(own.problem) / own.rate * 1e6)) / 10;
    story->tell("time",
                text("at least some ", us, " us: ", tiles::kNormLaunch, " us for the launch, and the bytes at ",
                     scaled_text(own.rate, "B/s")),
                {{"estimate", Json::object({{"microseconds", us}, {"bytes_per_second", own.rate}})}});
  }
  story->tell("workspace", bytes(plan.workspace));
}

}  // namespace falchion
