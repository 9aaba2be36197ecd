// tools/ladder/backward.cpp: `falchion ladder backward`.
#include <fmt/core.h>

#include <string_view>
#include <utility>
#include <vector>

#include "ladder/backward_problem.hpp"
#include "ladder/library.hpp"
#include "runtime/runtime.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

constexpr int kHopper = 90;  // cuda::Device::sm
constexpr const char* kOperation = "attention_backward";
// On Hopper the library has two more rows: its kernel for sm_80 comes before the steps that only Hopper has, and its
// own kernel comes once more, adding dQ in any order like the steps.
constexpr const char *kSm80 = "sm80", *kAnyOrder = "any-order";

void measure(const BackwardLadderProblem& problem, int runs, const std::function<void()>& run, LadderRow* row) {
  const auto check = [&] {
    problem.poison();
    run();
    const Verdict verdict = problem.check();
    row->error = verdict.worst().error;
    row->share = verdict.worst().share();
    row->wrong = verdict.why;
    row->errors.clear();
    for (const auto& [gradient, report] : verdict.outputs) row->errors.emplace_back(gradient, to_json(report));
  };
  row->work = flop_count(problem.attention());
  check_and_time(
      check, [&] { row->time = time_on(problem.side(), runs, run); }, row);
}

LadderRow run_step(const ladder::backward::Step& step, const BackwardLadderProblem& problem, int runs) {
  LadderRow row{.name = step.name, .title = step.title, .file = step.file, .why = step.why};
  const SideMemory workspace(problem.side(), step.workspace_bytes(problem.sizes()));
  workspace.poison();
  const ladder::backward::Tensors tensors = problem.tensors(workspace.data());
  measure(
      problem, runs, [&] { require(step.run(problem.sizes(), tensors, nullptr), step.name); }, &row);
  return row;
}

/// The library's own kernel of one backend, as a step.
LadderRow library_row(Backend backend, bool any_order) {
  LadderRow row{
      .name = kLibrary,
      .title = "The library's own kernel",
      .file = "src/cpu/attention_backward/kernel.hpp",
      .why =
          "The same five products on vectors and, where the machine has them, on AMX tiles. Everything stands "
          "transposed: a lane is a query row, so that lse and D are vectors and nothing works across lanes. "
          "The keys of a head are shared between threads, each with sums of dQ of its own, which are added "
          "up in a fixed order. docs/design/cpu_backward.md has the numbers."};
  if (backend == Backend::sm80) {
    row.file = "src/sm80/attention_backward/once/kernel.cuh";
    row.why =
        "The same five products with finer work on the order of the instructions: S is transposed, so that half of P "
        "and of dS never leaves the registers, barriers have two halves with products between them, and exponentials "
        "and loads stand between products. Blocks add dQ in a fixed order, so it gives the same bits in each run. What "
        "the steps leave out, such as masks, biases and dropout, runs in two sweeps of seven products, and so does all "
        "of it where a block gets less than 163 KB of shared memory. docs/design/sm80_backward.md says what was tried.";
  } else if (backend == Backend::sm90 && any_order) {
    row.title = "The library's, dQ in any order";
    row.file = "src/sm90/attention_backward/kernel.cuh";
    row.why =
        "The same kernel with any_order set. The blocks of a head no longer take turns at a tile of dQ: the sums "
        "are cleared before, and each block adds whenever it has something, as those of the last step do. Neighbours "
        "begin two tiles apart. Then two runs need not give the same bits. What is gained is the price of the fixed "
        "order.";
  } else if (backend == Backend::sm90) {
    row.file = "src/sm90/attention_backward/kernel.cuh";
    row.why =
        "The roles of the last step, with what was found by measuring. S of the next tile is started while dK of this "
        "one still runs, and dQ of the tile before runs under the arithmetic of this one, so that the tensor cores "
        "need not wait for either consumer; the consumers take turns, so that their exponentials do not fall "
        "together. The first block that has a part of a tile of dQ stores it, so that nobody clears the sums, and the "
        "others add theirs in a fixed order. So, unlike the steps, it gives the same bits in each run, and pays for "
        "it where blocks wait for their turn. docs/design/sm90_backward.md says what was measured on the way, and what "
        "failed.";
  }
  return row;
}

LadderRow run_library(const BackwardLadderProblem& problem, int runs, const char* name, Backend backend) {
  Attention attention = problem.attention();
  attention.any_order = std::string_view(name) == kAnyOrder;
  LadderRow row = library_row(backend, attention.any_order);
  row.name = name;
  return run_library(
      std::move(row), problem, attention, {kOperation, Pass::backward, backend, problem.dtype(), backend},
      [](const Plan& plan, LadderRow* row) { row->title += " " + kernel_text(plan); },
      [&](const auto& run, LadderRow* row) { measure(problem, runs, run, row); });
}

/// The steps in their order, with the library's kernels among them.
std::vector<Rung> rungs_of(const BackwardLadderProblem& problem, int runs,
                           const std::vector<const ladder::backward::Step*>& steps) {
  const bool gpu = problem.side() == Side::gpu;
  const bool hopper = sm_of(problem.side()) == kHopper && library_has(kOperation, Backend::sm90, problem.dtype());
  std::vector<Rung> rungs;
  const auto add_library = [&](const char* name, Backend backend) {
    rungs.push_back({name, [&problem, runs, name, backend] { return run_library(problem, runs, name, backend); }});
  };
  const auto add_steps = [&](int only_sm) {
    for (const ladder::backward::Step* step : steps)
      if (step->only_sm == only_sm)
        rungs.push_back({step->name, [&problem, runs, step] { return run_step(*step, problem, runs); }});
  };
  add_steps(0);
  if (hopper) add_library(kSm80, Backend::sm80);
  add_steps(kHopper);
  add_library(kLibrary, hopper ? Backend::sm90 : gpu ? Backend::sm80 : Backend::cpu);
  if (hopper) add_library(kAnyOrder, Backend::sm90);
  return rungs;
}

}  // namespace

int climb_backward(const LadderOptions& options, Side side) {
  const bool gpu = side == Side::gpu;
  const BackwardLadderProblem problem(side, attention_sizes(options, side), static_cast<std::uint64_t>(options.seed));
  const int runs = options.runs_on(gpu);
  const auto here = steps_here(side, gpu ? ladder::backward::gpu_steps() : ladder::backward::cpu_steps());
  const std::vector<Rung> rungs = rungs_of(problem, runs, here.steps);
  LadderReport report{.side = side,
                      .dtype = name(problem.dtype()),
                      .problem = problem_name(problem.attention()),
                      .problem_json = to_json(problem.attention()),
                      .unit = "FLOP/s",
                      .unit_json = "flops_per_second",
                      .error_title = "max error",
                      .notes = {problem.what_is_checked()},
                      .folder = "src/ladder/backward"};
  if (!here.left_out.empty()) report.notes.push_back(here.left_out);
  return tell(options, report, climb(options, rungs, here.left_out));
}

}  // namespace falchion::tools
