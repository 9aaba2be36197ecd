// src/api/trace.hpp: FALCHION_TRACE and FALCHION_TRACE_DUMP: a line on stderr for each plan and each run, with its time
// and the command that repeats it; NVTX ranges; the operands of the last run in a file. This is the one place where the
// library prints, and only if the variables are set. docs/trace.md is for users.
#pragma once

#include <chrono>
#include <string>

#include "api/operand_list.hpp"
#include "api/problem_line.hpp"
#include "falchion/falchion.hpp"
#include "plan/plan_data.hpp"

namespace falchion::trace {

/// The requests in the environment. It is read once, when a plan is first made or run.
struct Wanted {
  bool lines = false, ranges = false;
  const char* dump = nullptr;
  bool any() const { return lines || ranges || dump != nullptr; }
};
const Wanted& wanted() noexcept;

/// An NVTX range for its lifetime, if a tool listens and this build has the header.
class Range {
 public:
  explicit Range(const std::string& name) noexcept;
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

using Clock = std::chrono::steady_clock;
inline double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// The problem of a plan, as far as it is known without operands. If it has lengths, each sequence has the longest
/// ones.
line::Problem problem_of(const PlanData& plan);
/// The problem of a run, with its lengths and with the layouts of its operands. Lengths on a device are read only if
/// `from_device` is set. *note lists what differs from the run.
template <class Operands_>
line::Problem problem_of(const PlanData& plan, const Operands_& x, const OperandList& list, bool from_device,
                         std::string* note);

// None of these throws: a trace that cannot be written is left out.
void tell_plan(const PlanData& plan, const Status& status, double microseconds) noexcept;
template <class Operands_>
void tell_run(const PlanData& plan, const Operands_& x, const OperandList& list, const Status& status,
              double microseconds) noexcept;
/// Writes what a run reads into the file that FALCHION_TRACE_DUMP names. The operands have passed validation.
template <class Operands_>
void dump(const PlanData& plan, const Operands_& x, const OperandList& list) noexcept;

/// make() makes the plan.
template <class Make>
Status planned(const PlanData& plan, const Make& make) {
  if (!wanted().any()) return make();
  const Range range("falchion plan");
  const auto start = Clock::now();
  Status status = make();
  tell_plan(plan, status, microseconds_since(start));
  return status;
}

}  // namespace falchion::trace
