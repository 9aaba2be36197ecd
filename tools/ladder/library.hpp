// tools/ladder/library.hpp: the last step of every ladder, the library's own kernel, run through a plan.
#pragma once

#include "ladder/ladder.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "problem/levels.hpp"
#include "tool.hpp"

namespace falchion::tools {

/// The requested kernel. A build without a kernel for this backend and type leaves the step out; any other reason for
/// the lack of a plan is an error.
struct LibraryKernel {
  const char* operation;  // "attention_forward"
  Pass pass;
  Backend backend;
  DType dtype;
  Target target;
};

template <class Problem>
Status make_plan(const Problem& problem, const LibraryKernel& kernel, Plan* out) {
  return Plan::make(problem, kernel.pass, kernel.target, out);
}
inline Status make_plan(const Gemm& problem, const LibraryKernel& kernel, Plan* out) {
  return Plan::make(problem, kernel.target, out);
}

/// Plans `operation`, calls name(plan, row) so that the row names the kernel, and measure(run, row) to run it.
template <class Problem, class Operation, class Name, class Measure>
LadderRow run_library(LadderRow row, const Problem& problem, const Operation& operation, LibraryKernel kernel,
                      const Name& name, const Measure& measure) {
  const bool gpu = problem.side() == Side::gpu;
  kernel.target.threads = gpu ? 0 : thread_count();
  Plan plan;
  if (const Status status = make_plan(operation, kernel, &plan); !status) {
    if (library_has(kernel.operation, kernel.backend, kernel.dtype)) row.wrong = "the plan refuses: " + status.why;
    row.not_built = status.why;
    return row;
  }
  if (gpu && !on_gpu(plan)) {  // the target is the best backend, and no GPU variant takes the problem
    row.not_built = "the plan takes a kernel of the CPU";
    return row;
  }
  name(plan, &row);
  const SideMemory workspace(problem.side(), plan.workspace_bytes());
  const auto operands = problem.operands();
  measure([&] { require(plan.run(operands, workspace.data(), workspace.size())); }, &row);
  return row;
}

/// "(sm90)", or the level of a CPU.
inline std::string kernel_text(const Plan& plan) {
  return "(" + (on_gpu(plan) ? plan_backend(plan) : plan_level(plan)) + ")";
}

}  // namespace falchion::tools
