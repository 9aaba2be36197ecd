// tools/ladder/linear.cpp: `falchion ladder linear`.
#include <fmt/core.h>

#include "command/table.hpp"
#include "ladder/library.hpp"
#include "ladder/linear_problem.hpp"
#include "measure/measure_gpu.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

constexpr const char* kOperation = "linear_attention_forward";

/// On the GPU there are 64 heads, where the classic choice (by 40 heads) is the wrong one. On the CPU there are 8 heads
/// of half the length.
ladder::linear::Problem problem_of(const LadderOptions& options, Side side) {
  const bool gpu = side == Side::gpu;
  if (options.causal || options.s_k > 0)
    throw UsageError{"ladder: --causal and --s-k are of ladder attention; linear attention is causal"};
  ladder::linear::Problem p;
  p.b = options.given(options.b, gpu ? 4 : 1);
  p.h = options.given(options.h, gpu ? 16 : 8);
  p.s = options.given(options.s, gpu ? 8192 : 4096);
  p.d_qk = options.given(options.d, 64);
  p.d_v = options.given(options.d_v, p.d_qk);
  p.reverse = options.reverse;
  require_grid(p.b, p.h);
  require(p.check(), "ladder");
  return p;
}

void measure(const LinearLadderProblem& problem, DType dtype, int runs, const std::function<void()>& run,
             LadderRow* row) {
  const auto check = [&] {
    problem.poison(dtype);
    run();
    const LinearLadderProblem::Check of_o = problem.check(dtype);
    row->error = of_o.error;
    row->share = of_o.error / of_o.limit;
    row->wrong = of_o.wrong;
    row->errors = {{"o", Json::object({{"rms_error", of_o.error},
                                       {"limit", of_o.limit},
                                       {"share_of_limit", row->share},
                                       {"passed", row->passed()},
                                       {"why", of_o.wrong}})}};
  };
  row->work = problem.bytes(dtype);
  check_and_time(
      check, [&] { row->time = time_on(problem.side(), runs, run); }, row);
}

LadderRow run_step(const ladder::linear::Step& step, const LinearLadderProblem& problem, int runs) {
  LadderRow row{.name = step.name,
                .title = fmt::format("{}, {}", step.title, name(step.dtype)),
                .file = step.file,
                .why = step.why};
  const SideMemory workspace(problem.side(), step.workspace_bytes(problem.sizes()));
  workspace.poison();
  const ladder::linear::Tensors tensors = problem.tensors(step.dtype, workspace.data());
  measure(
      problem, step.dtype, runs, [&] { require(step.run(problem.sizes(), tensors, nullptr), step.name); }, &row);
  return row;
}

LadderRow library_row(bool gpu) {
  LadderRow row{.name = kLibrary, .title = "The library's own kernel", .file = "", .why = ""};
  if (gpu) {
    row.why =
        "The same chunks and segments, with everything decided by the plan: the next chunks on their way while this "
        "one "
        "is computed, all but one product transposed so that the state never leaves the registers, any head dims to "
        "256 "
        "and any strides, f16 as well; feature map, normaliser, decay, states and packed lengths in the same pass.";
  } else {
    row.file = "src/cpu/linear_attention/forward.hpp";
    row.why =
        "The same chunks on vectors and, where the machine has them, on AMX tiles; where heads are fewer than threads "
        "the sequence is cut into segments, as on the GPU.";
  }
  return row;
}

LadderRow run_library(const LinearLadderProblem& problem, int runs) {
  const bool gpu = problem.side() == Side::gpu;
  const DType dtype = problem.library_dtype();
  return run_library(
      library_row(gpu), problem, problem.attention(),
      {kOperation, Pass::forward, gpu ? Backend::sm80 : Backend::cpu, dtype, gpu ? Backend::best : Backend::cpu},
      [&](const Plan& plan, LadderRow* row) {
        row->title += fmt::format(" {}, {}", kernel_text(plan), name(dtype));
        if (gpu) row->file = fmt::format("src/{}/linear_attention_chunks.cuh", plan_backend(plan));
      },
      [&](const auto& run, LadderRow* row) { measure(problem, dtype, runs, run, row); });
}

std::string problem_name(const ladder::linear::Problem& p) {
  const std::string d = p.d_v == p.d_qk ? fmt::format("d{}", p.d_qk) : fmt::format("d{}/{}", p.d_qk, p.d_v);
  return fmt::format("b{} h{} s{} {}{}", p.b, p.h, p.s, d, p.reverse ? " reverse" : "");
}

}  // namespace

int climb_linear(const LadderOptions& options, Side side) {
  const bool gpu = side == Side::gpu;
  const ladder::linear::Problem p = problem_of(options, side);
  const LinearLadderProblem problem(side, p, static_cast<std::uint64_t>(options.seed));
  const int runs = options.runs_on(gpu);
  std::vector<Rung> rungs;
  for (const ladder::linear::Step* step : gpu ? ladder::linear::gpu_steps() : ladder::linear::cpu_steps())
    rungs.push_back({step->name, [&problem, step, runs] { return run_step(*step, problem, runs); }});
  rungs.push_back({kLibrary, [&] { return run_library(problem, runs); }});
  LadderReport report{
      .side = side,
      .dtype = gpu ? "f32 and bf16" : "f32",
      .problem = problem_name(p),
      .problem_json =
          Json::object({{"b", p.b}, {"h", p.h}, {"s", p.s}, {"d_qk", p.d_qk}, {"d_v", p.d_v}, {"reverse", p.reverse}}),
      .unit = "B/s",
      .unit_json = "bytes_per_second",
      .error_title = "RMS error",
      .notes = {problem.what_is_checked()},
      .folder = "src/ladder/linear"};
  std::string rate = "Rate: q, k, v and o moved once, in the step's own type";
  if (gpu) {
    const double copy = GpuLimits::measure().copy;
    rate += "; a copy reads and writes " + format_rate(copy, "B/s");
    report.problem_json = report.problem_json.with("copy_bytes_per_second", copy);
  }
  report.notes.push_back(rate);
  return tell(options, report, climb(options, rungs));
}

}  // namespace falchion::tools
