// tools/ladder/gemm.cpp: `falchion ladder gemm`.
#include <fmt/core.h>

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
  std::unique_ptr<const GemmLadderProblem> f32, bf16;
  std::unique_ptr<const Cublas> cublas;  // may be nullptr
  int runs;

  const GemmLadderProblem& of(DType dtype) const { return dtype == DType::f32 ? *f32 : *bf16; }
};

ladder::gemm::Problem problem_of(const LadderOptions& options, Side side) {
  if (options.b > 0 || options.h > 0 || options.s > 0 || options.s_k > 0 || options.d > 0 || options.d_v > 0 ||
      options.causal || options.reverse)
    throw UsageError{"ladder: gemm has --m, --n and --k, and none of the sizes and flags of attention"};
  if (side == Side::cpu && !options.cublas.empty())
    throw UsageError{"ladder: --cublas: it is the GPU's steps that are compared with it"};
  const int side_of_square = side == Side::gpu ? 4096 : 768;
  return {options.given(options.m, side_of_square), options.given(options.n, side_of_square),
          options.given(options.k, side_of_square)};
}

/// Checks and times a row, and times cuBLAS right after it: clocks change while a ladder is climbed.
void measure(const Ladder& ladder, DType dtype, const std::function<void()>& run, LadderRow* row) {
  const GemmLadderProblem& problem = ladder.of(dtype);
  problem.poison();
  run();
  const ErrorReport error = problem.check();
  row->error = error.error;
  row->share = error.share();
  row->wrong = error.why;
  row->errors = {{"c", to_json(error)}};
  row->work = flop_count(problem.gemm());
  row->time = time_on(problem.side(), ladder.runs, run);
  if (ladder.cublas == nullptr) return;
  const auto rival = [&] {
    require(ladder.cublas->multiply(dtype, problem.sizes(), problem.tensors(nullptr)), "ladder");
  };
  row->rival_seconds = time_on(problem.side(), ladder.runs, rival).median();
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
      .file = "src/cpu/gemm.hpp",
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
        if (gpu) row->file = fmt::format("src/{}", plan_backend(plan));
      },
      [&](const auto& run, LadderRow* row) { measure(ladder, dtype, run, row); });
}

/// The steps in f32 with the library's own after them, and then those in bf16.
std::vector<Rung> rungs_of(const Ladder& ladder, const std::vector<const ladder::gemm::Step*>& steps) {
  std::vector<Rung> rungs;
  for (const DType dtype : {DType::f32, DType::bf16}) {
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
  Ladder ladder{.f32 = std::make_unique<GemmLadderProblem>(side, p, DType::f32, seed),
                .bf16 = std::make_unique<GemmLadderProblem>(side, p, DType::bf16, seed),
                .cublas = nullptr,
                .runs = options.runs_on(gpu)};
  std::string no_cublas;
  if (gpu) ladder.cublas = Cublas::find(options.cublas, &no_cublas);
  const auto here = steps_here(side, gpu ? ladder::gemm::gpu_steps() : ladder::gemm::cpu_steps());
  const std::vector<LadderRow> rows = climb(options, rungs_of(ladder, here.steps), here.left_out);
  LadderReport report{.side = side,
                      .dtype = "f32 and bf16",
                      .problem = size_name(ladder.bf16->gemm()),
                      .problem_json = Json::object({{"m", p.m}, {"n", p.n}, {"k", p.k}}),
                      .unit = "FLOP/s",
                      .unit_json = "flops_per_second",
                      .error_title = "max error",
                      .notes = {ladder.bf16->what_is_checked()},
                      .folder = "src/ladder/gemm",
                      .rival = ladder.cublas != nullptr ? ladder.cublas->name() : ""};
  if (!no_cublas.empty()) report.notes.push_back("Not compared with cuBLAS (--cublas FILE): " + no_cublas);
  if (!here.left_out.empty()) report.notes.push_back(here.left_out);
  return tell(options, report, rows);
}

}  // namespace falchion::tools
