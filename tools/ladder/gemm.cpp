// tools/ladder/gemm.cpp: `falchion ladder gemm`.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "ladder/cublas.hpp"
#include "ladder/gemm_problem.hpp"
#include "ladder/library.hpp"
#include "problem/errors.hpp"
#include "problem/gemm_problem.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

constexpr const char* kOperation = "gemm";
constexpr const char* kLibraryF32 = "library-f32";  // and in bf16 it is the last row

/// What all rows of one type share.
struct Ladder {
  std::unique_ptr<const GemmLadderProblem> f32, bf16;  // the branches are in bf16 alone
  std::unique_ptr<const Cublas> cublas;                // may be nullptr
  int runs;

  const GemmLadderProblem& of(DType dtype) const { return dtype == DType::f32 ? *f32 : *bf16; }
};

/// The branch that options.step names, or nullptr.
const ladder::gemm::Branch* branch_of(const LadderOptions& options) {
  for (const ladder::gemm::Branch& branch : ladder::gemm::gpu_branches())
    if (branch.step->name == options.step) return &branch;
  return nullptr;
}

/// The problem where no sizes are given: a square, and for branches a shape on which one of them pays.
ladder::gemm::Problem usual_problem(const LadderOptions& options, Side side) {
  if (side == Side::cpu) return {768, 768, 768};
  if (const auto* branch = branch_of(options)) return branch->shape;
  const auto branches = ladder::gemm::gpu_branches();
  return options.branches && !branches.empty() ? branches.front().shape : ladder::gemm::Problem{4096, 4096, 4096};
}

ladder::gemm::Problem problem_of(const LadderOptions& options, Side side) {
  if (options.b > 0 || options.h > 0 || options.s > 0 || options.s_k > 0 || options.d > 0 || options.d_v > 0 ||
      options.causal || options.reverse)
    throw UsageError{"ladder: gemm has --m, --n and --k, and none of the sizes and flags of attention"};
  if (side == Side::cpu && !options.cublas.empty())
    throw UsageError{"ladder: --cublas: it is the GPU's steps that are compared with it"};
  if (side == Side::cpu && options.branches) throw UsageError{"ladder: --branches: they are steps of the GPU"};
  const ladder::gemm::Problem usual = usual_problem(options, side);
  return {options.given(options.m, usual.m), options.given(options.n, usual.n), options.given(options.k, usual.k)};
}

/// Checks a row, and times it and cuBLAS in turns: clocks change while a ladder is climbed.
void measure(const Ladder& ladder, DType dtype, const std::function<void()>& run, LadderRow* row) {
  const GemmLadderProblem& problem = ladder.of(dtype);
  const auto check = [&] {
    problem.poison();
    run();
    note_error("c", problem.check(), row);
  };
  const auto time = [&] {
    std::vector<std::function<void()>> in_turns = {run};
    if (ladder.cublas != nullptr)
      in_turns.push_back(
          [&] { require(ladder.cublas->multiply(dtype, problem.sizes(), problem.tensors(nullptr)), "ladder"); });
    const std::vector<Samples> times = time_in_turns(problem.side(), ladder.runs, in_turns);
    row->time = times.front();
    if (ladder.cublas != nullptr) row->rival_seconds = times.back().median();
  };
  row->work = flop_count(problem.gemm());
  check_and_time(check, time, row);
}

LadderRow run_step(const ladder::gemm::Step& step, const Ladder& ladder) {
  LadderRow row{.name = step.name,
                .title = fmt::format("{}, {}", step.title, name(step.dtype)),
                .file = step.file,
                .why = step.why};
  const GemmLadderProblem& problem = ladder.of(step.dtype);
  const SideMemory workspace(problem.side(), step.workspace_bytes(problem.sizes()));
  workspace.poison();
  const ladder::gemm::Tensors tensors = problem.tensors(workspace.data());
  measure(
      ladder, step.dtype, [&] { require(step.run(problem.sizes(), tensors, nullptr), step.name); }, &row);
  return row;
}

LadderRow run_library(const char* row_name, const Ladder& ladder, DType dtype) {
  const GemmLadderProblem& problem = ladder.of(dtype);
  const bool gpu = problem.side() == Side::gpu;
  LadderRow row{
      .name = row_name,
      .title = "The library's own kernel",
      .file = gpu ? "src/sm80/gemm.cuh" : "src/cpu/gemm.hpp",
      .why = gpu ? "The loops of the steps, with tiles, stages and clusters that the plan chooses for the sizes, any "
                   "strides, and bias, activation and residual in the same pass. docs/design/gemm.md says what was "
                   "measured on the way."
                 : "The same blocks on vectors of the widest kind that the processor has and, for bf16, on AMX "
                   "tiles where it has those. Few rows, any strides, bias, activation and residual are in the "
                   "same pass. docs/design/gemm.md has the numbers."};
  return run_library(
      std::move(row), problem, problem.gemm(),
      {kOperation, Pass::forward, gpu ? Backend::sm80 : Backend::cpu, dtype, gpu ? Backend::best : Backend::cpu},
      [&](const Plan& plan, LadderRow* row) {
        row->title += fmt::format(" {}, {}", kernel_text(plan), name(dtype));
        if (gpu) row->file = fmt::format("src/{}/gemm.cuh", plan_backend(plan));
      },
      [&](const auto& run, LadderRow* row) { measure(ladder, dtype, run, row); });
}

/// What is run: the steps that the device has, or the last of them and the branches.
std::vector<const ladder::gemm::Step*> chosen_steps(bool branches, Side side,
                                                    std::vector<const ladder::gemm::Step*> steps) {
  if (!branches) return steps;
  steps.erase(steps.begin(), steps.end() - 1);
  for (const ladder::gemm::Branch& branch : ladder::gemm::gpu_branches())
    if (branch.step->runs_on(sm_of(side))) steps.push_back(branch.step);
  return steps;
}

/// The steps of each type with the library's own after them.
std::vector<Rung> rungs_of(const Ladder& ladder, const std::vector<DType>& dtypes,
                           const std::vector<const ladder::gemm::Step*>& steps) {
  std::vector<Rung> rungs;
  for (const DType dtype : dtypes) {
    for (const ladder::gemm::Step* step : steps)
      if (step->dtype == dtype) rungs.push_back({step->name, [&ladder, step] { return run_step(*step, ladder); }});
    const char* const name = dtype == DType::f32 ? kLibraryF32 : kLibrary;
    rungs.push_back({name, [&ladder, name, dtype] { return run_library(name, ladder, dtype); }});
  }
  return rungs;
}

}  // namespace

int climb_gemm(const LadderOptions& options, Side side) {
  const bool gpu = side == Side::gpu;
  const ladder::gemm::Problem p = problem_of(options, side);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const bool branches = options.branches || branch_of(options) != nullptr;
  Ladder ladder{.f32 = branches ? nullptr : std::make_unique<GemmLadderProblem>(side, p, DType::f32, seed),
                .bf16 = std::make_unique<GemmLadderProblem>(side, p, DType::bf16, seed),
                .cublas = nullptr,
                .runs = options.runs_on(gpu)};
  std::string no_cublas;
  if (gpu) ladder.cublas = Cublas::find(options.cublas, &no_cublas);
  const auto here = steps_here(side, gpu ? ladder::gemm::gpu_steps() : ladder::gemm::cpu_steps());
  LadderOptions of_rows = options;
  if (options.branches) of_rows.step.clear();  // it names the shape
  const auto steps = chosen_steps(branches, side, here.steps);
  const std::vector<DType> dtypes = branches ? std::vector{DType::bf16} : std::vector{DType::f32, DType::bf16};
  const std::vector<LadderRow> rows = climb(of_rows, rungs_of(ladder, dtypes, steps), here.left_out);
  LadderReport report{.side = side,
                      .dtype = branches ? "bf16" : "f32 and bf16",
                      .problem = size_name(ladder.bf16->gemm()),
                      .problem_json = Json::object({{"m", p.m}, {"n", p.n}, {"k", p.k}}),
                      .unit = "FLOP/s",
                      .unit_json = "flops_per_second",
                      .error_title = "max error",
                      .notes = {ladder.bf16->what_is_checked()},
                      .folder = "src/ladder/gemm",
                      .rival = ladder.cublas != nullptr ? ladder.cublas->name() : "",
                      .climbs = !branches};
  if (!no_cublas.empty()) report.notes.push_back("Not compared with cuBLAS (--cublas FILE): " + no_cublas);
  if (!here.left_out.empty()) report.notes.push_back(here.left_out);
  return tell(options, report, rows);
}

}  // namespace falchion::tools
