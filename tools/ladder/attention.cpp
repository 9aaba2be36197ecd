// tools/ladder/attention.cpp: `falchion ladder attention`.
#include <fmt/core.h>

#include <cmath>
#include <optional>

#include "api/data_of.hpp"
#include "ladder/library.hpp"
#include "ladder/problem.hpp"
#include "problem/work.hpp"
#include "runtime/runtime.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

constexpr int kHopper = 90;  // cuda::Device::sm
constexpr const char* kOperation = "attention_forward";

void measure(const LadderProblem& problem, int runs, const std::function<void()>& run, LadderRow* row) {
  const auto check = [&] {
    problem.poison();
    run();
    note_error("o", problem.check(), row);
  };
  row->work = flop_count(problem.attention());
  check_and_time(
      check, [&] { row->time = time_on(problem.side(), runs, run); }, row);
}

LadderRow run_step(const ladder::Step& step, const LadderProblem& problem, int runs) {
  LadderRow row{.name = step.name, .title = step.title, .file = step.file, .why = step.why};
  const SideMemory workspace(problem.side(), step.workspace_bytes(problem.sizes()));
  workspace.poison();
  const ladder::Tensors tensors = problem.tensors(workspace.data());
  measure(
      problem, runs, [&] { require(step.run(problem.sizes(), tensors, nullptr), step.name); }, &row);
  return row;
}

/// The library's own kernel of one backend, as a step.
LadderRow library_row(Backend backend) {
  LadderRow row{
      .name = kLibrary, .title = "The library's own kernel", .file = "src/cpu/attention_forward/kernel.hpp", .why = ""};
  row.why =
      "The same loops on vectors and, where the machine has them, on AMX tiles. Everything stands transposed: a "
      "lane is a query row, so that no maximum and no sum works across lanes; exp is a polynomial; products and "
      "softmax of neighbouring tiles run under each other. docs/design/cpu_forward.md has the numbers.";
  if (backend == Backend::sm80) {
    row.file = "src/sm80/attention_forward/kernel.cuh";
    row.why =
        "The same loops, with everything decided by the plan: tiles that fit the head dim, several head dims and "
        "types from one source, masks, biases, packed and ragged lengths, grouped heads, splits where rows are "
        "few. docs/design says what was measured on the way, and what failed.";
  } else if (backend == Backend::sm90) {
    row.file = "src/sm90/attention_forward/kernel.cuh";
    row.why =
        "The same turns, by blocks of threads that stay: one for each multiprocessor takes tile after tile of "
        "query rows, and a warp of its own works out which. S of the next tile is started before O of this one "
        "is stored; under a causal mask a long tile is paired with a short one; O is rescaled once a row instead "
        "of once a tile of keys; at d 64 four warpgroups share the tensor cores. Tiles, stages and registers "
        "are the plan's. docs/design/sm90_forward.md says what was measured on the way, and what failed.";
  }
  return row;
}

LadderRow run_library(const LadderProblem& problem, int runs) {
  const bool gpu = problem.side() == Side::gpu;
  const bool hopper =
      gpu && cuda::current_device().sm == kHopper && library_has(kOperation, Backend::sm90, problem.dtype());
  const Backend backend = hopper ? Backend::sm90 : gpu ? Backend::sm80 : Backend::cpu;
  return run_library(
      library_row(backend), problem, problem.attention(),
      {kOperation, Pass::forward, backend, problem.dtype(), hopper ? Backend::best : backend},
      [&](const Plan& plan, LadderRow* row) {
        if (gpu) *row = library_row(data_of(plan)->backend);
        row->title += " " + kernel_text(plan);
      },
      [&](const auto& run, LadderRow* row) { measure(problem, runs, run, row); });
}

}  // namespace

/// On the GPU there are 128 heads, which FlashAttention-1 needs to occupy 128 multiprocessors; S takes 2.1 GB. On the
/// CPU there is one head, which shows which steps can share one between threads; the naive step takes a fraction of a
/// second.
ladder::Problem attention_sizes(const LadderOptions& options, Side side) {
  const bool gpu = side == Side::gpu;
  if (options.reverse || options.d_v > 0) throw UsageError{"ladder: --reverse and --d-v are of ladder linear"};
  ladder::Problem p;
  p.d = options.given(options.d, 64);
  if (p.d != 64 && p.d != 128) throw UsageError{fmt::format("ladder: --d {}: attention's steps have 64 and 128", p.d)};
  p.b = options.given(options.b, gpu ? 8 : 1);
  p.h = options.given(options.h, gpu ? 16 : 1);
  p.s_q = options.given(options.s, 2048);
  p.s_k = options.given(options.s_k, p.s_q);
  require_grid(p.b, p.h);
  p.causal = options.causal;
  p.scale = 1 / std::sqrt(static_cast<float>(p.d));
  return p;
}

int climb_attention(const LadderOptions& options, Side side) {
  const ladder::Problem sizes = attention_sizes(options, side);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const LadderProblem problem(side, sizes, seed);
  std::optional<LadderProblem> in_eight_bits;  // made at the first use
  const int runs = options.runs_on(side == Side::gpu);
  std::vector<Rung> rungs;
  const auto here = steps_here(side, side == Side::gpu ? ladder::gpu_steps() : ladder::cpu_steps());
  for (const ladder::Step* step : here.steps)
    rungs.push_back({step->name, [&, step] {
                       if (step->eight_bits && !in_eight_bits) in_eight_bits.emplace(side, sizes, seed, true);
                       return run_step(*step, step->eight_bits ? *in_eight_bits : problem, runs);
                     }});
  rungs.push_back({kLibrary, [&] { return run_library(problem, runs); }});
  LadderReport report{.side = side,
                      .dtype = name(problem.dtype()),
                      .problem = problem_name(problem.attention()),
                      .problem_json = to_json(problem.attention()),
                      .unit = "FLOP/s",
                      .unit_json = "flops_per_second",
                      .error_title = "max error",
                      .notes = {problem.what_is_checked()},
                      .folder = "src/ladder/attention"};
  if (!here.left_out.empty()) report.notes.push_back(here.left_out);
  return tell(options, report, climb(options, rungs, here.left_out));
}

}  // namespace falchion::tools
