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

/// Steps that run the same problem, and the library's own kernels after them.
class Group {
 public:
  Group(Side side, const ladder::gemm::Problem& sizes, std::uint64_t seed) : side_(side), sizes_(sizes), seed_(seed) {}

  std::vector<const ladder::gemm::Step*> steps{};
  std::vector<DType> dtypes{DType::bf16};

  void add(const ladder::gemm::Step* step) {
    if (step->runs_on(sm_of(side_)) && std::find(steps.begin(), steps.end(), step) == steps.end())
      steps.push_back(step);
  }
  /// The problem in a type, made at the first use.
  const GemmLadderProblem& of(DType dtype) const {
    auto& made = dtype == DType::f32 ? f32_ : bf16_;
    if (made == nullptr) made = std::make_unique<GemmLadderProblem>(side_, sizes_, dtype, seed_);
    return *made;
  }
  /// How the results were checked; empty if none was.
  std::string what_is_checked() const {
    const GemmLadderProblem* const any = bf16_ != nullptr ? bf16_.get() : f32_.get();
    return any != nullptr ? any->what_is_checked() : "";
  }
  std::string name() const { return size_name(Gemm{.m = sizes_.m, .n = sizes_.n, .k = sizes_.k}); }
  Json json() const { return Json::object({{"m", sizes_.m}, {"n", sizes_.n}, {"k", sizes_.k}}); }

 private:
  Side side_;
  ladder::gemm::Problem sizes_;
  std::uint64_t seed_;
  mutable std::unique_ptr<const GemmLadderProblem> f32_, bf16_;
};

/// How all rows are measured.
struct Meter {
  std::unique_ptr<const Cublas> cublas;  // may be nullptr
  int runs;
};

/// The branch that options.step names, or nullptr.
const ladder::gemm::Branch* branch_of(const LadderOptions& options) {
  for (const ladder::gemm::Branch& branch : ladder::gemm::gpu_branches())
    if (branch.step->name == options.step) return &branch;
  return nullptr;
}

void require_options(const LadderOptions& options, Side side) {
  if (options.b > 0 || options.h > 0 || options.s > 0 || options.s_k > 0 || options.d > 0 || options.d_v > 0 ||
      options.causal || options.reverse)
    throw UsageError{"ladder: gemm has --m, --n and --k, and none of the sizes and flags of attention"};
  if (side == Side::cpu && !options.cublas.empty())
    throw UsageError{"ladder: --cublas: it is the GPU's steps that are compared with it"};
  if (side == Side::cpu && options.branches) throw UsageError{"ladder: --branches: they are steps of the GPU"};
}

/// The given sizes, and defaults for the others.
Group group_of(const LadderOptions& options, Side side, const ladder::gemm::Problem& usual) {
  return {side,
          {options.given(options.m, usual.m), options.given(options.n, usual.n), options.given(options.k, usual.k)},
          static_cast<std::uint64_t>(options.seed)};
}

/// Checks a row, and times it and cuBLAS in turns, because clocks change during a ladder.
void measure(const Meter& meter, const GemmLadderProblem& problem, const std::function<void()>& run, LadderRow* row) {
  const auto check = [&] {
    problem.poison();
    run();
    note_error("c", problem.check(), row);
  };
  const auto time = [&] {
    std::vector<std::function<void()>> in_turns = {run};
    if (meter.cublas != nullptr)
      in_turns.push_back([&] {
        require(meter.cublas->multiply(problem.dtype(), problem.sizes(), problem.tensors(nullptr)), "ladder");
      });
    const std::vector<Samples> times = time_in_turns(problem.side(), meter.runs, in_turns);
    row->time = times.front();
    if (meter.cublas != nullptr) row->rival_seconds = times.back().median();
  };
  row->work = flop_count(problem.gemm());
  check_and_time(check, time, row);
}

LadderRow run_step(const ladder::gemm::Step& step, const Meter& meter, const GemmLadderProblem& problem) {
  LadderRow row{.name = step.name,
                .title = fmt::format("{}, {}", step.title, name(step.dtype)),
                .file = step.file,
                .why = step.why};
  const SideMemory workspace(problem.side(), step.workspace_bytes(problem.sizes()));
  workspace.poison();
  const ladder::gemm::Tensors tensors = problem.tensors(workspace.data());
  measure(
      meter, problem, [&] { require(step.run(problem.sizes(), tensors, nullptr), step.name); }, &row);
  return row;
}

LadderRow run_library(const char* row_name, const Meter& meter, const GemmLadderProblem& problem) {
  const DType dtype = problem.dtype();
  const bool gpu = problem.side() == Side::gpu;
  LadderRow row{
      .name = row_name,
      .title = "The library's own kernel",
      .file = gpu ? "src/sm80/gemm/kernel.cuh" : "src/cpu/gemm/kernel.hpp",
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
      [&](const auto& run, LadderRow* row) { measure(meter, problem, run, row); });
}

/// The groups of the branches, or of the named one, each with the step that it starts from. Branches that run the same
/// problem are one group. left_out becomes a sentence about those that do not run here.
std::vector<Group> groups_of_branches(const LadderOptions& options, Side side, std::string* left_out) {
  std::vector<Group> groups;
  std::vector<const ladder::gemm::Step*> all;
  for (const ladder::gemm::Branch& branch : ladder::gemm::gpu_branches()) all.push_back(branch.step);
  *left_out = steps_here(side, std::span<const ladder::gemm::Step* const>(all)).left_out;
  const ladder::gemm::Branch* const named = branch_of(options);
  for (const ladder::gemm::Branch& branch : ladder::gemm::gpu_branches()) {
    if (!branch.step->runs_on(sm_of(side)) || (named != nullptr && named != &branch)) continue;
    Group group = group_of(options, side, branch.shape);
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.name() == group.name(); });
    Group& to = same != groups.end() ? *same : groups.emplace_back(std::move(group));
    to.add(branch.parent);
    to.add(branch.step);
  }
  return groups;
}

/// The steps of each type in a group, with the library's own after them.
void add_rungs(const Group& group, const Meter& meter, std::vector<Rung>* rungs) {
  for (const DType dtype : group.dtypes) {
    for (const ladder::gemm::Step* step : group.steps)
      if (step->dtype == dtype)
        rungs->push_back(
            {step->name, [&group, &meter, step] { return run_step(*step, meter, group.of(step->dtype)); }});
    const char* const name = dtype == DType::f32 ? kLibraryF32 : kLibrary;
    rungs->push_back({name, [&group, &meter, name, dtype] { return run_library(name, meter, group.of(dtype)); }});
  }
}

/// The rungs of all groups. With several groups a row names its problem.
std::vector<Rung> rungs_of(const std::vector<Group>& groups, const Meter& meter) {
  std::vector<Rung> rungs;
  for (const Group& group : groups) {
    const std::size_t first = rungs.size();
    add_rungs(group, meter, &rungs);
    if (groups.size() == 1) continue;
    for (std::size_t i = first; i < rungs.size(); ++i)
      rungs[i].run = [&group, run = std::move(rungs[i].run)] {
        LadderRow row = run();
        row.problem = group.name();
        row.problem_json = group.json();
        return row;
      };
  }
  return rungs;
}

}  // namespace

int climb_gemm(const LadderOptions& options, Side side) {
  require_options(options, side);
  const bool gpu = side == Side::gpu;
  const bool branches = gpu && (options.branches || branch_of(options) != nullptr);
  std::vector<Group> groups;
  std::string left_out;
  std::string no_cublas;
  if (branches) {
    groups = groups_of_branches(options, side, &left_out);
  } else {
    const auto here = steps_here(side, gpu ? ladder::gemm::gpu_steps() : ladder::gemm::cpu_steps());
    left_out = here.left_out;
    const int usual = gpu ? 4096 : 768;
    groups.push_back(group_of(options, side, {usual, usual, usual}));
    groups.front().steps = here.steps;
    groups.front().dtypes = {DType::f32, DType::bf16};
  }
  const Meter meter{.cublas = gpu ? Cublas::find(options.cublas, &no_cublas) : nullptr, .runs = options.runs_on(gpu)};
  LadderOptions of_rows = options;
  if (options.branches && branch_of(options) != nullptr) of_rows.step.clear();  // it names the group
  const std::vector<LadderRow> rows = climb(of_rows, rungs_of(groups, meter), left_out);
  const bool one = groups.size() == 1;
  LadderReport report{.side = side,
                      .dtype = branches ? "bf16" : "f32 and bf16",
                      .problem = one ? groups.front().name() : "on the shape of each branch",
                      .problem_json = one ? groups.front().json() : Json(nullptr),
                      .unit = "FLOP/s",
                      .unit_json = "flops_per_second",
                      .error_title = "max error",
                      .notes = {},
                      .folder = "src/ladder/gemm",
                      .rival = meter.cublas != nullptr ? meter.cublas->name() : "",
                      .climbs = !branches};
  for (const Group& group : groups)
    if (const std::string note = group.what_is_checked();
        !note.empty() && (report.notes.empty() || report.notes.back() != note))
      report.notes.push_back(note);
  if (!no_cublas.empty()) report.notes.push_back("Not compared with cuBLAS (--cublas FILE): " + no_cublas);
  if (!left_out.empty()) report.notes.push_back(left_out);
  return tell(options, report, rows);
}

}  // namespace falchion::tools
