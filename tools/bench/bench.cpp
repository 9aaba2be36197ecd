// tools/bench/bench.cpp: `falchion bench` shows medians beside this machine's own measured limits, as a table and as
// Google Benchmark's JSON.
#include <fmt/core.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>

#include "api/data_of.hpp"
#include "bench/cases.hpp"
#include "bench/result.hpp"
#include "command/file_names.hpp"
#include "command/interrupt.hpp"
#include "command/print_json.hpp"
#include "command/table.hpp"
#include "cpu/threads.hpp"
#include "measure/machine.hpp"
#include "measure/measure_gpu.hpp"
#include "measure/peaks.hpp"
#include "plan/linear_attention.hpp"
#include "plan/text.hpp"
#include "problem/backward.hpp"
#include "problem/files.hpp"
#include "problem/instance.hpp"
#include "problem/levels.hpp"
#include "problem/linear_instance.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// The levels that are measured. A single empty name leaves the choice to the plan.
std::vector<std::string> level_list(const std::string& text) {
  if (text.empty()) return {""};
  if (text != "all") return split(text);
  std::vector<std::string> out;
  for (const Path& path : usable_paths(DType::bf16, false, false)) out.push_back(path.level);
  return out;
}

/// The limits of the CPU and of the GPU that results are compared with. Each is measured when a plan first runs there.
struct Limits {
  int threads;
  std::optional<Peaks> cpu;
  std::optional<GpuLimits> gpu;
};

template <class AnyOperands>
void measure_on_cpu(const Prepared& prepared, const AnyOperands& x, int runs, BenchResult* result, Limits* limits) {
  // The peak is that of all allowed threads. If the plan uses fewer for a small problem, the share of the others is
  // unused.
  if (!limits->cpu) limits->cpu.emplace(limits->threads);
  Peaks& peaks = *limits->cpu;
  peaks.need(result->unit);
  if (result->roof == Roof::slower && !result->unit.empty()) peaks.dram();  // ref has no roof
  Samples dram;
  const auto run = [&] { require(prepared.run(x)); };
  result->time = sample(runs, run, [&] {
    if (result->cold) dram.seconds.push_back(peaks.dram().read());  // 1 GiB through every cache
  });
  if (result->cold) result->dram_beside = peaks.dram().bytes() / dram.median();
}

template <class AnyOperands>
void measure_on_gpu(const Prepared& prepared, const AnyOperands& x, int runs, BenchResult* result, Limits* limits) {
  if (!limits->gpu) limits->gpu = GpuLimits::measure();
  GpuRun run(prepared.plan(), x);
  result->time = run.sample(runs, result->cold);
  run.download();
  result->on_gpu = true;
  const DType dtype = dtype_of(result->problem);
  if (result->chunk > 0 && dtype == DType::f32 && data_of(prepared.plan())->backend == Backend::sm90)
    result->hold_against(limits->gpu->nominal_of_three_f16(), "nominal 3 x f16", limits->gpu->copy, "copy");
  else if (result->chunk > 0 && dtype == DType::f32)
    result->hold_against(limits->gpu->nominal_of_three_tf32(), "nominal 3 x TF32", limits->gpu->copy, "copy");
  else if (result->roof == Roof::memory && result->problem.op == Op::attention && limits->gpu->read > 0)
    result->hold_against(limits->gpu->nominal(dtype), "nominal peak", limits->gpu->read,
                         "read");  // writes next to nothing
  else
    result->hold_against(limits->gpu->nominal(dtype), "nominal peak", limits->gpu->copy, "copy");
}

/// Measures a plan; independent of the operation.
template <class AnyOperands>
void measure_runs(const Prepared& prepared, const AnyOperands& x, const BenchOptions& options, BenchResult* result,
                  Limits* limits) {
  const Plan& plan = prepared.plan();
  result->backend = plan_backend(plan);
  result->level = plan_level(plan);
  result->threads = plan_threads(plan);
  result->describe = plan.describe();
  result->unit = limiting_unit(plan);
  result->cold = options.cold || (result->roof == Roof::memory && !options.warm);
  const int runs = static_cast<int>(options.runs);
  if (prepared.on_gpu()) return measure_on_gpu(prepared, x, runs, result, limits);
  measure_on_cpu(prepared, x, runs, result, limits);
}

/// The last token's first element of each head.
void require_numbers(const Tensor& x, const BenchResult& result) {
  for (std::int64_t h = 0; h < x.shape[2] && x.shape[0] > 0 && x.shape[1] > 0; ++h)
    if (const double value = load_element(x, 0, x.shape[1] - 1, h, 0); value != value)
      throw UsageError{"the result holds NaN: this is a bug, please report " + result.describe};
}

Layout layout_of(const BenchOptions& options) { return options.layout == "bhsd" ? Layout::bhsd : Layout::bshd; }

void measure(const Attention& problem, const BenchOptions& options, const Target& target, BenchResult* result,
             Limits* limits) {
  const Prepared prepared(problem, target);
  const std::int64_t ragged = result->problem.ragged;
  const Instance instance =
      ragged > 0 ? make_cache_instance(problem, ragged_lengths(problem.b, ragged, problem.s_k), 1, layout_of(options))
                 : make_instance(problem, 1, layout_of(options));
  const Outputs outputs(instance, dtype_of_o(problem), layout_of(options));
  Operands x = instance.operands();
  outputs.attach(&x);
  result->roof = is_decode(problem) || options.decode ? Roof::memory : Roof::arithmetic;
  result->flops = flop_count(problem, problem.cache ? &x : nullptr);
  result->bytes = byte_count(problem, problem.cache ? &x : nullptr);
  measure_runs(prepared, x, options, result, limits);
  require_numbers(x.o, *result);
}

/// o and lse come from an untimed forward pass, so that the gradients are those of real attention.
void measure(const BackwardProblem& problem, const BenchOptions& options, const Target& target, BenchResult* result,
             Limits* limits) {
  const Prepared prepared(problem, Pass::backward, target);
  const Instance instance = make_instance(problem, 1, layout_of(options));
  const BackwardInputs inputs = make_backward_inputs(instance, 1, layout_of(options));
  const GradientOutputs outputs(instance, layout_of(options));
  Operands x = instance.operands();
  inputs.attach(&x);
  outputs.attach(&x);
  result->roof = Roof::arithmetic;
  result->flops = flop_count(problem);
  result->bytes = byte_count(problem);
  measure_runs(prepared, x, options, result, limits);
  for (const Tensor* gradient : {&x.grad_q, &x.grad_k, &x.grad_v})
    if (gradient->data != nullptr) require_numbers(*gradient, *result);
}

void measure(const LinearProblem& problem, const BenchOptions& options, const Target& target, BenchResult* result,
             Limits* limits) {
  const Prepared prepared(problem, problem.pass, target);
  const LinearInstance instance = make_linear_instance(problem, 1, layout_of(options));
  result->roof = Roof::slower;
  result->chunk = linear_chunk(*data_of(prepared.plan()));
  result->flops = flop_count(problem, result->chunk);
  result->bytes = byte_count(problem);
  measure_runs(prepared, instance.operands(), options, result, limits);
  for (const HostTensor* output : instance.outputs()) require_numbers(output->view, *result);
}

/// A problem without passes, whose sizes say all. output: of which all must be numbers.
template <class Problem, class Make, class Output>
void measure_plain(const Problem& problem, const Make& make, Output output, Roof roof, const BenchOptions& options,
                   const Target& target, BenchResult* result, Limits* limits) {
  const Prepared prepared(problem, target);
  const auto instance = make(problem, 1);
  result->roof = roof;
  result->flops = flop_count(problem);
  result->bytes = byte_count(problem);
  measure_runs(prepared, instance.operands(), options, result, limits);
  require_numbers((instance.*output).view, *result);
}

void measure(const Gemm& problem, const BenchOptions& options, const Target& target, BenchResult* result,
             Limits* limits) {
  const auto make = [](const Gemm& gemm, std::uint64_t seed) { return make_gemm_instance(gemm, seed); };
  measure_plain(problem, make, &GemmInstance::d, Roof::slower, options, target, result, limits);
}

void measure(const Norm& problem, const BenchOptions& options, const Target& target, BenchResult* result,
             Limits* limits) {
  measure_plain(problem, make_norm_instance, &NormInstance::y, Roof::memory, options, target, result, limits);
}

void measure(const NormBackwardProblem& problem, const BenchOptions& options, const Target& target, BenchResult* result,
             Limits* limits) {
  const Prepared prepared(problem, Pass::backward, target);
  const NormInstance instance = make_norm_backward_instance(problem, 1);
  result->roof = Roof::memory;
  result->flops = flop_count(problem);
  result->bytes = byte_count(problem);
  measure_runs(prepared, instance.operands(), options, result, limits);
  for (const HostTensor* gradient : {&instance.grad_x, &instance.grad_weight, &instance.grad_bias})
    require_numbers(gradient->view, *result);
}

void measure(const Quantise& problem, const BenchOptions& options, const Target& target, BenchResult* result,
             Limits* limits) {
  measure_plain(problem, make_quantise_instance, &QuantiseInstance::scale, Roof::memory, options, target, result,
                limits);
}

/// Compares a CPU result with the limits, after all measurements.
void hold_against_cpu(const Peaks& peaks, BenchResult* r) {
  const double flops = peaks.flops(r->unit);
  double dram = r->dram_beside;  // for decode; in a warm run its bytes do not come from DRAM
  if (r->roof == Roof::slower) dram = flops > 0 ? peaks.bytes_per_second() : 0;  // ref has no roof
  r->hold_against(flops, unit_title(r->unit), dram, "DRAM read");
}

void print_table(const std::vector<BenchResult>& results) {
  Table table({"<problem", "<type", "<plan", "<cache", "median", "±", "floor", "rate", "bandwidth", "share", "<of"});
  Marks marks;
  for (const BenchResult& r : results) {
    const std::string threads = r.on_gpu ? "" : fmt::format(" t{}", r.threads);
    const std::string plan = fmt::format("{}{}{}{}", r.backend, r.level.empty() ? "" : " ", r.level, threads);
    table.row({problem_name(r.problem), name(dtype_of(r.problem)), plan, r.cold ? "cold" : "warm",
               format_seconds(r.time.median()), marks.spread(r.time.spread()),
               r.limit > 0 ? format_seconds(r.floor()) : "-", format_rate(r.flops / r.time.median(), "FLOP/s"),
               format_rate(r.bytes / r.time.median(), "B/s"), r.limit > 0 ? marks.share(r.share()) : "-",
               r.limit_name});
  }
  fmt::print("{}{}", table.text(), marks.text());
}

Json peaks_json(const Limits& limits) {
  std::vector<Json::Member> out;
  const std::map<std::string, double> units = limits.cpu ? limits.cpu->units() : std::map<std::string, double>{};
  for (const auto& [unit, flops] : units) out.emplace_back(unit, flops);
  return Json::object(out);
}

Json to_json(const std::vector<BenchResult>& results, const Limits& limits) {
  std::vector<Json::Member> measured = {
      {"measured_peak_flops", peaks_json(limits)},
      {"measured_dram_bytes_per_second", limits.cpu ? limits.cpu->bytes_per_second() : 0}};
  if (limits.gpu)
    measured.emplace_back("gpu", Json::object({{"sms", limits.gpu->sms},
                                               {"clock_hz", limits.gpu->clock_hz},
                                               {"measured_copy_bytes_per_second", limits.gpu->copy},
                                               {"read_bytes_per_second", limits.gpu->read},
                                               {"nominal_bf16_flops", limits.gpu->nominal(DType::bf16)}}));
  const Json out = result_facts(limits.gpu ? limits.gpu->name : "", measured);
  return (interrupted() ? out.with("interrupted", true) : out).with("benchmarks", benchmark_json(results));
}

/// Every problem on every level, or those before an interruption.
std::vector<BenchResult> measure_all(const BenchOptions& options, const std::vector<BenchProblem>& list,
                                     const std::vector<std::string>& levels, Limits* limits) {
  std::vector<BenchResult> results;
  const bool live = isatty(STDERR_FILENO) != 0;
  for (std::size_t i = 0; i < list.size(); ++i)
    for (const std::string& level : levels) {
      if (interrupted()) break;
      TargetOptions where = options.where;
      where.level = level;
      const Target target = where.target();
      if (live)
        fmt::print(stderr, "\r\033[K{}/{} {} {}", i + 1, list.size(), name(dtype_of(list[i])), problem_name(list[i]));
      BenchResult& result = results.emplace_back();
      result.problem = list[i];
      std::visit([&](const auto& problem) { measure(problem, options, target, &result, limits); }, list[i].problem);
    }
  if (live) fmt::print(stderr, "\r\033[K");
  return results;
}

int bench(const BenchOptions& options) {
  FileNames().writes("--json", options.json_file);
  Limits limits{options.where.threads > 0 ? static_cast<int>(options.where.threads) : cpu::default_threads(), {}, {}};
  const auto list = bench_problems(options);
  const auto levels = level_list(options.where.level);
  const Interruptible guard;
  std::vector<BenchResult> results = measure_all(options, list, levels, &limits);
  if (interrupted())
    fmt::print(stderr, "falchion: interrupted: {} of {} results\n", results.size(), list.size() * levels.size());
  if (results.empty() && interrupted()) return interrupted_exit_code();
  if (results.empty()) throw UsageError{"nothing to measure"};
  if (limits.cpu) limits.cpu->measure_again();
  for (BenchResult& r : results)
    if (!r.on_gpu) hold_against_cpu(*limits.cpu, &r);
  const std::string json = pretty(to_json(results, limits).text()) + "\n";
  if (!options.json_file.empty()) write_text(options.json_file, json);
  if (options.as_json && options.json_file.empty()) {
    fmt::print("{}", json);
  } else {
    if (limits.cpu)
      fmt::print("{}, {} threads. Measured limits: {}\n", cpu_model(), limits.cpu->threads(), limits.cpu->text());
    if (limits.gpu) fmt::print("{}\n", limits.gpu->text(dtype_of(results.front().problem)));
    fmt::print("\n");
    print_table(results);
  }
  return interrupted() ? interrupted_exit_code() : exit_ok;
}

}  // namespace

void add_bench(Command& command) {
  const auto options = std::make_shared<BenchOptions>();
  options->add_to(command);
  command.run([options](const Given&) { return bench(*options); });
}

}  // namespace falchion::tools
