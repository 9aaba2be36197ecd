// tools/bench.cpp: `falchion bench`: medians beside this machine's own measured limits, as a table and as Google
// Benchmark's JSON.
#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench_result.hpp"
#include "files.hpp"
#include "instance.hpp"
#include "levels.hpp"
#include "machine.hpp"
#include "measure_gpu.hpp"
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

/// On a GPU: 16k tokens of hidden size 2048, full and causal, and decode steps.
std::vector<Attention> usual_gpu_problems(const std::vector<std::string>& dtypes) {
  SizeOptions sizes;
  sizes.dtype = dtypes;
  std::vector<Attention> out;
  for (const std::int64_t d : {64, 128, 256})
    for (const std::int64_t s : {1024, 4096, 16384})
      for (const bool causal : {false, true}) {
        sizes.b = {16384 / s}, sizes.h = {2048 / d}, sizes.s = {s}, sizes.d = {d};
        for (Attention a : sizes.expand()) {
          if (causal) a.band = Band::causal(Align::bottom_right);
          out.push_back(a);
        }
      }
  SizeOptions decode;
  decode.dtype = dtypes;
  decode.h_q = {32}, decode.h_k = {8}, decode.s_q = {1};
  for (const auto& [b, s_k] : {std::pair<std::int64_t, std::int64_t>{1, 8192}, {16, 8192}, {1, 131072}, {64, 1024}}) {
    decode.b = {b}, decode.s_k = {s_k};
    for (const Attention& a : decode.expand()) out.push_back(a);
  }
  return out;
}

/// Does this run on a GPU, as far as the options say?
bool wants_gpu(const TargetOptions& where) {
  const Backend backend = parse_backend(where.backend);
  if (backend == Backend::best) return where.level.empty() && !usable_gpu_paths(DType::bf16).empty();
  return backend == Backend::sm80 || backend == Backend::sm90;
}

std::vector<Attention> problems(const Options& options) {
  std::vector<Attention> out = options.sizes.given()      ? options.sizes.expand()
                               : wants_gpu(options.where) ? usual_gpu_problems(options.sizes.dtype)
                                                          : usual_problems(options.sizes.dtype);
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

/// What results are held against: of the CPU, of the GPU. Each is measured when a plan first runs there.
struct Limits {
  std::optional<Peaks> cpu;
  std::optional<GpuLimits> gpu;
};

void measure_on_cpu(const Prepared& prepared, const Operands& x, int runs, BenchResult* result, Limits* limits) {
  if (!limits->cpu) limits->cpu.emplace(result->threads);
  Peaks& peaks = *limits->cpu;
  peaks.need(result->unit);
  Samples dram;
  const auto run = [&] { require(prepared.run(x)); };
  result->time = sample(runs, run, [&] {
    if (result->cold) dram.seconds.push_back(peaks.dram().read());  // 1 GiB through every cache
  });
  if (result->cold) result->dram_beside = peaks.dram().bytes() / dram.median();
}

void measure_on_gpu(const Prepared& prepared, const Operands& x, int runs, BenchResult* result, Limits* limits) {
  if (!limits->gpu) limits->gpu = GpuLimits::measure();
  GpuRun run(prepared.plan(), x);
  result->time = run.sample(runs, result->cold);
  run.download();
  result->on_gpu = true;
  result->limit = result->decode ? limits->gpu->copy : limits->gpu->nominal(result->problem.dtype);
  if (result->limit > 0) result->limit_name = result->decode ? "copy" : "nominal peak";
}

BenchResult measure(const Attention& problem, const Options& options, const Target& target, Limits* limits) {
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
  (prepared.on_gpu() ? measure_on_gpu : measure_on_cpu)(prepared, x, static_cast<int>(options.runs), &result, limits);
  for (std::int64_t h = 0; h < problem.h_q && problem.s_q > 0; ++h)
    if (load_element(x.o, 0, problem.s_q - 1, h, 0) != load_element(x.o, 0, problem.s_q - 1, h, 0))
      throw UsageError{"the result holds NaN: this is a bug, please report " + result.describe};
  return result;
}

void print_table(const std::vector<BenchResult>& results) {
  Table table({"<problem", "<type", "<plan", "<cache", "median", "±", "rate", "bandwidth", "share", "<of"});
  for (const BenchResult& r : results) {
    const std::string threads = r.on_gpu ? "" : fmt::format(" t{}", r.threads);
    const std::string plan = fmt::format("{}{}{}{}", r.backend, r.level.empty() ? "" : " ", r.level, threads);
    table.row({problem_name(r.problem), name(r.problem.dtype), plan, r.cold ? "cold" : "warm",
               format_seconds(r.time.median()), format_percent(r.time.spread()),
               format_rate(r.flops / r.time.median(), "FLOP/s"), format_rate(r.bytes / r.time.median(), "B/s"),
               r.limit > 0 ? format_percent(r.share()) : "-", r.limit_name});
  }
  fmt::print("{}", table.text());
}

nlohmann::json to_json(const std::vector<BenchResult>& results, const Limits& limits) {
  using Units = std::map<std::string, double>;
  nlohmann::json json = benchmark_json(results, limits.cpu ? limits.cpu->units() : Units{},
                                       limits.cpu ? limits.cpu->bytes_per_second() : 0);
  if (!limits.gpu) return json;
  auto& context = json["context"];
  context["host_cpu"] = context["device"];
  context["device"] = limits.gpu->name;
  context["gpu"] = {{"sms", limits.gpu->sms},
                    {"clock_hz", limits.gpu->clock_hz},
                    {"measured_copy_bytes_per_second", limits.gpu->copy},
                    {"nominal_bf16_flops", limits.gpu->nominal(DType::bf16)}};
  return json;
}

int bench(const Options& options) {
  std::vector<BenchResult> results;
  Limits limits;
  const auto list = problems(options);
  const auto levels = level_list(options.where.level);
  const bool live = isatty(STDERR_FILENO) != 0;
  for (std::size_t i = 0; i < list.size(); ++i)
    for (const std::string& level : levels) {
      const Target target =
          Path{parse_backend(options.where.backend), level}.target(static_cast<int>(options.where.threads));
      if (live)
        fmt::print(stderr, "\r\033[K{}/{} {} {}", i + 1, list.size(), name(list[i].dtype), problem_name(list[i]));
      results.push_back(measure(list[i], options, target, &limits));
    }
  if (live) fmt::print(stderr, "\r\033[K");
  if (results.empty()) throw UsageError{"nothing to measure"};
  if (limits.cpu) limits.cpu->measure_again();
  for (BenchResult& r : results) {
    if (r.on_gpu) continue;
    r.limit = r.decode ? (r.cold ? r.dram_beside : 0) : limits.cpu->flops(r.unit);
    r.limit_name = r.limit == 0 ? "" : r.decode ? "DRAM read" : unit_title(r.unit);
  }
  const nlohmann::json json = to_json(results, limits);
  if (!options.json_file.empty()) write_text(options.json_file, json.dump(1) + "\n");
  if (options.as_json && options.json_file.empty()) {
    fmt::print("{}\n", json.dump(1));
  } else {
    if (limits.cpu)
      fmt::print("{}, {} threads. Measured limits: {}\n", cpu_model(), limits.cpu->threads(), limits.cpu->text());
    if (limits.gpu) fmt::print("{}\n", limits.gpu->text(results.front().problem.dtype));
    fmt::print("\n");
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
