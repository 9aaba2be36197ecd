// tools/bench.cpp: `falchion bench`: medians beside this machine's own measured limits, as a table and as Google
// Benchmark's JSON.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench_result.hpp"
#include "files.hpp"
#include "instance.hpp"
#include "levels.hpp"
#include "machine.hpp"
#include "peaks.hpp"
#include "plan/text.hpp"
#include "problem_options.hpp"
#include "table.hpp"
#include "tool.hpp"
#include "work.hpp"

namespace falchion::tools {
namespace {

struct Options {
  SizeOptions sizes;
  FeatureOptions features;
  TargetOptions where;
  std::string layout = "bshd", json_file;
  std::int64_t runs = 9;
  bool lse = false, cold = false, warm = false, as_json = false;
};

/// What is measured when no size is named: prefill in each type, full and causal, and one decode step.
std::vector<Attention> usual_problems(const std::vector<std::string>& dtypes) {
  SizeOptions prefill, decode;
  prefill.dtype = dtypes.empty() ? std::vector<std::string>{"bf16", "f16", "f32"} : dtypes;
  prefill.s = {1024, 4096};
  prefill.d = {64, 128};
  decode.dtype = {prefill.dtype.front()};
  decode.h_q = {32};
  decode.h_k = {8};
  decode.s_q = {1};
  decode.s_k = {8192};
  std::vector<Attention> out;
  for (const Attention& a : prefill.expand()) {
    out.push_back(a);
    out.push_back(a);
    out.back().band = Band::causal(Align::bottom_right);
  }
  for (const Attention& a : decode.expand()) out.push_back(a);
  return out;
}

std::vector<Attention> problems(const Options& options) {
  std::vector<Attention> out = options.sizes.given() ? options.sizes.expand() : usual_problems(options.sizes.dtype);
  for (Attention& a : out) {
    const Band band = a.band;
    options.features.apply(&a);
    if (!options.features.causal_given && options.features.window.empty()) a.band = band;
    a.lse = options.lse;
  }
  return out;
}

/// The levels to go through; one empty name leaves the choice to the plan.
std::vector<std::string> level_list(const std::string& text) {
  if (text.empty()) return {""};
  if (text != "all") return split(text);
  std::vector<std::string> out;
  for (const Path& path : usable_paths(DType::bf16, false, false)) out.push_back(path.level);
  return out;
}

BenchResult measure(const Attention& problem, const Options& options, const Target& target, Peaks* peaks) {
  const Layout layout = options.layout == "bhsd" ? Layout::bhsd : Layout::bshd;
  const Prepared prepared(problem, target);
  const Instance instance = make_instance(problem, 1, layout);
  const Outputs outputs(instance, problem.dtype, layout);
  Operands x = instance.operands();
  outputs.attach(&x);

  BenchResult result;
  result.problem = problem;
  result.backend = plan_backend(prepared.plan());
  result.level = plan_level(prepared.plan());
  result.threads = plan_threads(prepared.plan());
  result.describe = prepared.plan().describe();
  result.flops = flop_count(problem);
  result.bytes = byte_count(problem);
  result.decode = is_decode(problem);
  result.cold = options.cold || (result.decode && !options.warm);
  result.unit = limiting_unit(prepared.plan());
  peaks->need(result.unit);

  Samples dram;
  const auto run = [&] { require(prepared.run(x)); };
  result.time = sample(static_cast<int>(options.runs), run, [&] {
    if (result.cold) dram.seconds.push_back(peaks->dram().read());  // 1 GiB through every cache
  });
  if (result.cold) result.dram_beside = peaks->dram().bytes() / dram.median();
  for (std::int64_t h = 0; h < problem.h_q && problem.s_q > 0; ++h)
    if (load_element(x.o, 0, problem.s_q - 1, h, 0) != load_element(x.o, 0, problem.s_q - 1, h, 0))
      throw UsageError{"the result holds NaN: this is a bug, please report " + result.describe};
  return result;
}

void print_table(const std::vector<BenchResult>& results) {
  Table table({"<problem", "<type", "<plan", "<cache", "median", "±", "rate", "bandwidth", "share", "<of"});
  for (const BenchResult& r : results) {
    const std::string plan = fmt::format("{}{}{} t{}", r.backend, r.level.empty() ? "" : " ", r.level, r.threads);
    table.row({problem_name(r.problem), name(r.problem.dtype), plan, r.cold ? "cold" : "warm",
               format_seconds(r.time.median()), format_percent(r.time.spread()),
               format_rate(r.flops / r.time.median(), "FLOP/s"), format_rate(r.bytes / r.time.median(), "B/s"),
               r.limit > 0 ? format_percent(r.share()) : "-", r.limit_name});
  }
  fmt::print("{}", table.text());
}

int bench(const Options& options) {
  std::vector<BenchResult> results;
  std::optional<Peaks> peaks;
  const auto list = problems(options);
  const auto levels = level_list(options.where.level);
  const bool live = isatty(STDERR_FILENO) != 0;
  for (std::size_t i = 0; i < list.size(); ++i)
    for (const std::string& level : levels) {
      const Target target =
          Path{parse_backend(options.where.backend), level}.target(static_cast<int>(options.where.threads));
      if (live)
        fmt::print(stderr, "\r\033[K{}/{} {} {}", i + 1, list.size(), name(list[i].dtype), problem_name(list[i]));
      if (!peaks) peaks.emplace(plan_threads(Prepared(list[i], target).plan()));
      results.push_back(measure(list[i], options, target, &*peaks));
    }
  if (live) fmt::print(stderr, "\r\033[K");
  if (!peaks) throw UsageError{"nothing to measure"};
  peaks->measure_again();
  for (BenchResult& r : results) {
    const bool by_memory = r.decode;
    r.limit = by_memory ? (r.cold ? r.dram_beside : 0) : peaks->flops(r.unit);
    r.limit_name = r.limit == 0 ? "" : by_memory ? "DRAM read" : unit_title(r.unit);
  }
  const nlohmann::json json = benchmark_json(results, peaks->units(), peaks->bytes_per_second());
  if (!options.json_file.empty()) write_text(options.json_file, json.dump(1) + "\n");
  if (options.as_json && options.json_file.empty()) {
    fmt::print("{}\n", json.dump(1));
  } else {
    fmt::print("{}, {} threads. Measured limits: {}\n\n", cpu_model(), peaks->threads(), peaks->text());
    print_table(results);
  }
  return exit_ok;
}

}  // namespace

void add_bench(Command& command) {
  const auto options = std::make_shared<Options>();
  options->sizes.add_to(command);
  options->features.add_to(command);
  command.flag("--lse", &options->lse, "With the log-sum-exp as an output");
  options->where.add_to(command, "Force CPU levels: one, a list, or all");
  command.group("How it is measured");
  command.integer("--runs", &options->runs, 1, 100000, "Timed runs; the median counts");
  command.choice("--layout", &options->layout, {"bshd", "bhsd"}, "How the tensors lie in memory");
  command.flag("--cold", &options->cold, "Flush the caches before each run (decode: always, unless --warm)");
  command.flag("--warm", &options->warm, "Never flush the caches");
  command.excludes("--cold", "--warm");
  command.optional("--json", &options->json_file, &options->as_json,
                   "Google Benchmark's JSON: to FILE, or instead of the table", "FILE");
  command.run([options] { return bench(*options); });
}

}  // namespace falchion::tools
