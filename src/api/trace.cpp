// src/api/trace.cpp: see trace.hpp.
#include "api/trace.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "plan/operation.hpp"
#include "plan/text.hpp"
#if defined(FALCHION_NVTX)
  #include <nvtx3/nvToolsExt.h>
#endif

namespace falchion::trace {
namespace {

const char* environment(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

Wanted read_environment() {
  Wanted out;
  const char* trace = environment("FALCHION_TRACE");
  const std::string_view word = trace != nullptr ? trace : "0";
  out.ranges = word != "0";
  out.lines = out.ranges && word != "nvtx";
  out.dump = environment("FALCHION_TRACE_DUMP");
  return out;
}

/// One call of stdio for one line, so that lines of several threads do not mix.
void write_line(const std::string& line) { static_cast<void>(std::fputs((line + "\n").c_str(), stderr)); }

std::string tail(double microseconds, const char* of, const Status& status, const line::Problem& problem,
                 const std::string& note) {
  return text(status ? "" : text("; ", name(status.code), ": ", status.why), "; ", microseconds, " us", of,
              "; falchion verify --problem '", line::to_text(problem), "'", note.empty() ? "" : text("  # ", note));
}

}  // namespace

const Wanted& wanted() noexcept {
  static const Wanted once = read_environment();
  return once;
}

#if defined(FALCHION_NVTX)
Range::Range(const std::string& name) noexcept {
  if (wanted().ranges) nvtxRangePushA(name.c_str());
}
Range::~Range() {
  if (wanted().ranges) nvtxRangePop();
}
#else
Range::Range(const std::string&) noexcept {}
Range::~Range() = default;
#endif

void tell_plan(const PlanData& plan, const Status& status, double microseconds) noexcept try {
  if (!wanted().lines) return;
  write_line(text("falchion: plan ", status ? describe(plan) : plan.operation->name,
                  tail(microseconds, "", status, problem_of(plan), "")));
} catch (...) { static_cast<void>(status); }

template <class Operands_>
void tell_run(const PlanData& plan, const Operands_& x, const OperandList& list, const Status& status,
              double microseconds) noexcept try {
  if (!wanted().lines) return;
  std::string note;
  // Of operands that validation has refused nothing is looked at.
  const line::Problem problem =
      status.code == Code::invalid ? problem_of(plan) : problem_of(plan, x, list, false, &note);
  const char* of = is_gpu(plan.backend) ? " on the host, to enqueue it" : "";
  write_line(text("falchion: run ", describe(plan), tail(microseconds, of, status, problem, note)));
} catch (...) { static_cast<void>(status); }

template void tell_run(const PlanData&, const Operands&, const OperandList&, const Status&, double) noexcept;
template void tell_run(const PlanData&, const LinearOperands&, const OperandList&, const Status&, double) noexcept;
template void tell_run(const PlanData&, const GemmOperands&, const OperandList&, const Status&, double) noexcept;
template void tell_run(const PlanData&, const NormOperands&, const OperandList&, const Status&, double) noexcept;
template void tell_run(const PlanData&, const QuantiseOperands&, const OperandList&, const Status&, double) noexcept;

}  // namespace falchion::trace
