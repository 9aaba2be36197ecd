// tools/ladder.cpp: `falchion ladder attention`: the steps from the naive kernel to the library's own, each timed
// beside the one before, checked, and explained.
#include "ladder.hpp"

#include <fmt/format.h>
#include <unistd.h>
#if FALCHION_OPENMP
  #include <omp.h>
#endif

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "gpu/runtime.hpp"
#include "levels.hpp"
#include "machine.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "table.hpp"
#include "tool.hpp"
#include "work.hpp"

namespace falchion::tools {
namespace {

struct Options {
  std::string kind, step, d = "64";
  std::int64_t b = 0, h = 0, s = 0, s_k = 0, runs = 0, seed = 1;
  bool cpu = false, gpu = false, causal = false, as_json = false, brief = false;
};

constexpr const char* kLibrary = "library";
constexpr int kHopper = 90;  // gpu::Device::sm

/// One step, measured.
struct Row {
  std::string name, title, file, why;
  std::string not_built{};  // why there is nothing to measure
  Samples time{};
  ErrorReport error{};
};

/// Of the CPU's steps; the library gets as many.
int thread_count() {
#if FALCHION_OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

Side choose_side(const Options& options) {
  const gpu::Device device = gpu::current_device();
  if (options.gpu && device.sm == 0) throw UsageError{"ladder: --gpu: " + device.why_not};
  return !options.cpu && device.sm > 0 ? Side::gpu : Side::cpu;
}

/// GPU: 128 heads, which FlashAttention-1 needs to occupy 128 multiprocessors; S is 2.1 GB. CPU: one head, so that it
/// shows who can share one; the naive step takes a fraction of a second.
ladder::Problem problem_of(const Options& options, Side side) {
  const bool gpu = side == Side::gpu;
  const auto given = [](std::int64_t x, int otherwise) { return x > 0 ? static_cast<int>(x) : otherwise; };
  ladder::Problem p;
  p.b = given(options.b, gpu ? 8 : 1), p.h = given(options.h, gpu ? 16 : 1);
  p.s_q = given(options.s, 2048), p.s_k = given(options.s_k, p.s_q);
  p.d = options.d == "128" ? 128 : 64;
  p.causal = options.causal;
  p.scale = 1 / std::sqrt(static_cast<float>(p.d));
  if (p.b * p.h > 65535) throw UsageError{fmt::format("ladder: b x h = {}, at most 65535", p.b * p.h)};
  return p;
}

void measure(const LadderProblem& problem, int runs, const std::function<void()>& run, Row* row) {
  problem.poison();
  run();
  row->error = problem.check();
  row->time = time_on(problem.side(), runs, run);
}

Row run_step(const ladder::Step& step, const LadderProblem& problem, int runs) {
  Row row{.name = step.name, .title = step.title, .file = step.file, .why = step.why};
  const SideMemory workspace(problem.side(), step.workspace_bytes(problem.sizes()));
  workspace.poison();
  const ladder::Tensors tensors = problem.tensors(workspace.data());
  measure(
      problem, runs, [&] { require(step.run(problem.sizes(), tensors, nullptr), step.name); }, &row);
  return row;
}

bool library_has(Backend backend, DType dtype) {
  return std::any_of(variants().begin(), variants().end(), [&](const Variant& v) {
    return v.backend == backend && v.dtype == dtype && std::string(v.op) == "attention_forward";
  });
}

/// The library's own kernel of one backend, as a step.
Row library_row(Backend backend) {
  Row row{.name = kLibrary, .title = "The library's own kernel", .file = "src/cpu/attention_forward.hpp", .why = ""};
  row.why =
      "The same loops on vectors and, where the machine has them, on AMX tiles. Everything stands transposed: a "
      "lane is a query row, so that no maximum and no sum works across lanes; exp is a polynomial; products and "
      "softmax of neighbouring tiles run under each other. docs/design/cpu_forward.md has the numbers.";
  if (backend == Backend::sm80) {
    row.file = "src/sm80/attention_forward.cuh";
    row.why =
        "The same loops, with everything decided by the plan: tiles that fit the head dim, several head dims and "
        "types from one source, masks, biases, packed and ragged lengths, grouped heads, splits where rows are "
        "few. docs/design says what was measured on the way, and what failed.";
  } else if (backend == Backend::sm90) {
    row.file = "src/sm90/attention_forward.cuh";
    row.why =
        "The same turns, by blocks of threads that stay: one for each multiprocessor takes tile after tile of "
        "query rows, and a warp of its own works out which. S of the next tile is started before O of this one "
        "is stored; under a causal mask a long tile is paired with a short one; O is rescaled once a row instead "
        "of once a tile of keys; at d 64 four warpgroups share the tensor cores. Tiles, stages and registers "
        "are the plan's. docs/design/sm90_forward.md says what was measured on the way, and what failed.";
  }
  return row;
}

/// The library's own kernel, through its plan as any caller would.
Row run_library(const LadderProblem& problem, int runs) {
  const bool gpu = problem.side() == Side::gpu;
  const bool hopper = gpu && gpu::current_device().sm == kHopper && library_has(Backend::sm90, problem.dtype());
  const Backend backend = hopper ? Backend::sm90 : gpu ? Backend::sm80 : Backend::cpu;
  Row row = library_row(backend);
  Plan plan;
  Target target(hopper ? Backend::best : backend);
  target.threads = gpu ? 0 : thread_count();
  if (const Status status = Plan::make(problem.attention(), Pass::forward, target, &plan); !status) {
    if (library_has(backend, problem.dtype())) row.error.why = "the plan refuses: " + status.why;
    row.not_built = status.why;
    return row;
  }
  if (gpu && !on_gpu(plan)) {  // best, and FALCHION_CPU is set
    row.not_built = "the plan takes a kernel of the CPU";
    return row;
  }
  if (gpu) row = library_row(plan.data()->backend);
  row.title += " (" + (gpu ? plan_backend(plan) : plan_level(plan)) + ")";
  const SideMemory workspace(problem.side(), plan.workspace_bytes());
  const Operands x = problem.operands();
  measure(
      problem, runs, [&] { require(plan.run(x, workspace.data(), workspace.size())); }, &row);
  return row;
}

/// The steps of this side that its device runs; left_out, if asked for: those that it does not.
std::vector<const ladder::Step*> steps_of(Side side, std::vector<const ladder::Step*>* left_out = nullptr) {
  const int sm = side == Side::gpu ? gpu::current_device().sm : 0;
  std::vector<const ladder::Step*> out;
  for (const ladder::Step* step : side == Side::gpu ? ladder::gpu_steps() : ladder::cpu_steps()) {
    if (step->runs_on(sm)) {
      out.push_back(step);
    } else if (left_out != nullptr) {
      left_out->push_back(step);
    }
  }
  return out;
}

/// One line: "Left out, for they run on sm_90 alone and this is sm_80: warp-roles, ..."; empty: nothing was.
std::string what_is_left_out(Side side) {
  std::vector<const ladder::Step*> left_out;
  steps_of(side, &left_out);
  std::string names;
  for (const ladder::Step* step : left_out) names += (names.empty() ? "" : ", ") + std::string(step->name);
  if (names.empty()) return "";
  return fmt::format("Left out, for they run on sm_{} alone and this is sm_{}: {}", left_out.front()->only_sm,
                     gpu::current_device().sm, names);
}

std::vector<Row> run_all(const Options& options, const LadderProblem& problem) {
  std::vector<Row> rows;
  const bool live = isatty(STDERR_FILENO) != 0;
  const int runs = options.runs > 0 ? static_cast<int>(options.runs) : problem.side() == Side::gpu ? 15 : 5;
  for (const ladder::Step* step : steps_of(problem.side())) {
    if (!options.step.empty() && options.step != step->name) continue;
    if (live) fmt::print(stderr, "\r\033[K{}", step->name);
    rows.push_back(run_step(*step, problem, runs));
  }
  if (options.step.empty() || options.step == kLibrary) rows.push_back(run_library(problem, runs));
  if (live) fmt::print(stderr, "\r\033[K");
  if (rows.empty()) {
    const std::string left_out = what_is_left_out(problem.side());
    throw UsageError{
        fmt::format("ladder: there is no step \"{}\" here{}{}", options.step, left_out.empty() ? "" : ". ", left_out)};
  }
  return rows;
}

double ratio(const Row& before, const Row& now) { return before.time.median() / now.time.median(); }

void print_table(const std::vector<Row>& rows, double flops) {
  Table table({"<step", "<what", "before", "time", "faster", "in all", "rate", "max error", "of limit", "<result"});
  const Row* before = nullptr;
  for (const Row& row : rows) {
    if (!row.not_built.empty()) {
      table.row({row.name, row.title, "", "-", "-", "-", "-", "-", "-", row.error.passed() ? "not built" : "FAIL"});
      continue;
    }
    const double seconds = row.time.median();
    table.row({row.name, row.title, before != nullptr ? format_seconds(before->time.median()) : "",
               format_seconds(seconds), before != nullptr ? fmt::format("{:.2f} x", ratio(*before, row)) : "",
               before != nullptr ? fmt::format("{:.1f} x", ratio(rows.front(), row)) : "",
               format_rate(flops / seconds, "FLOP/s"), format_error(row.error.error),
               format_percent(std::min(row.error.share(), 99.99)), row.error.passed() ? "ok" : "FAIL"});
    before = &row;
  }
  fmt::print("{}\n", table.text());
}

/// Whether each step is faster than the one before it; if not, which.
std::string slower_steps(const std::vector<Row>& rows) {
  std::string out;
  for (std::size_t i = 1; i < rows.size(); ++i)
    if (rows[i].not_built.empty() && ratio(rows[i - 1], rows[i]) < 1) out += (out.empty() ? "" : ", ") + rows[i].name;
  return out;
}

std::string wrapped(const std::string& text, std::size_t width) {
  std::string out;
  std::size_t begin = 0;
  while (text.size() - begin > width) {
    const std::size_t end = text.rfind(' ', begin + width);
    out += "  " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out + "  " + text.substr(begin) + "\n";
}

void print_text(const Options& options, const LadderProblem& problem, const std::vector<Row>& rows) {
  const bool gpu = problem.side() == Side::gpu;
  const Attention a = problem.attention();
  fmt::print("{}, {} {}: {}\n\n", gpu ? gpu::current_device().name : cpu_model(), name(a.dtype), problem_name(a),
             gpu ? "by events, median" : fmt::format("{} threads, median", thread_count()));
  print_table(rows, flop_count(a));
  fmt::print("{}.\n", problem.what_is_checked());
  if (const std::string left_out = what_is_left_out(problem.side()); !left_out.empty()) fmt::print("{}.\n", left_out);
  const std::string slower = slower_steps(rows);
  if (rows.size() > 1)
    fmt::print("{}.\n", slower.empty() ? "Each step is faster than the one before it"
                                       : "Slower than the step before: " + slower);
  for (const Row& row : rows) {
    if (!row.not_built.empty() && row.error.passed()) fmt::print("{}: not built: {}\n", row.name, row.not_built);
    if (!row.error.passed()) fmt::print("FAIL {}: {}\n", row.name, row.error.why);
  }
  for (const Row& row : rows) {
    if (options.brief) break;
    fmt::print("\n{}: {} ({})\n{}", row.name, row.title, row.file, wrapped(row.why, 110));
  }
  if (options.brief) return;
  fmt::print("\nThe walk through them, with pictures: docs/ladder.md. The files: src/ladder/attention.\n");
}

void print_json(const LadderProblem& problem, const std::vector<Row>& rows) {
  const Attention a = problem.attention();
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : rows) {
    nlohmann::json item = {{"step", row.name}, {"title", row.title}, {"file", row.file}, {"not_built", row.not_built}};
    if (row.not_built.empty()) {
      item["seconds"] = row.time.median(), item["spread"] = row.time.spread(), item["runs"] = row.time.seconds.size();
      item["flops_per_second"] = flop_count(a) / row.time.median();
      item["o"] = to_json(row.error);
    }
    list.push_back(item);
  }
  const bool gpu = problem.side() == Side::gpu;
  fmt::print("{}\n", nlohmann::json{{"context", benchmark_context()},
                                    {"device", gpu ? gpu::current_device().name : cpu_model()},
                                    {"problem", to_json(a)},
                                    {"monotone", slower_steps(rows).empty()},
                                    {"steps", list}}
                         .dump(1));
}

int run_ladder(const Options& options) {
  const Side side = choose_side(options);
  const LadderProblem problem(side, problem_of(options, side), static_cast<std::uint64_t>(options.seed));
  const std::vector<Row> rows = run_all(options, problem);
  if (options.as_json) {
    print_json(problem, rows);
  } else {
    print_text(options, problem, rows);
  }
  return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.error.passed(); }) ? exit_ok
                                                                                                  : exit_failed;
}

}  // namespace

void add_ladder(Command& command) {
  const auto options = std::make_shared<Options>();
  command.positional("ladder", &options->kind, {"attention"}, true, "Which ladder");
  command.flag("--cpu", &options->cpu, "The CPU's steps, also where there is a GPU");
  command.flag("--gpu", &options->gpu, "The GPU's steps, or an error");
  command.text("--step", &options->step, "This step alone", "NAME");
  command.integer("--b", &options->b, 0, 1 << 16, "Batch; 0: 8 on the GPU, 1 on the CPU");
  command.integer("--h", &options->h, 0, 1 << 16, "Heads; 0: 16 on the GPU, 1 on the CPU");
  command.integer("--s", &options->s, 0, 1 << 20, "Queries and keys; 0: 2048");
  command.integer("--s-k", &options->s_k, 0, 1 << 20, "Keys, where they are not as many as queries");
  command.choice("--d", &options->d, {"64", "128"}, "Head dim");
  command.flag("--causal", &options->causal, "A query sees no later key (bottom-right)");
  command.integer("--runs", &options->runs, 0, 1000, "Timed runs of each step; 0: 15 on the GPU, 5 on the CPU");
  command.integer("--seed", &options->seed, 0, std::int64_t{1} << 60, "Other random numbers");
  command.flag("--brief", &options->brief, "The table without the paragraphs");
  command.flag("--json", &options->as_json, "Machine-readable output");
  command.excludes("--cpu", "--gpu");
  command.run([options] { return run_ladder(*options); });
}

}  // namespace falchion::tools
