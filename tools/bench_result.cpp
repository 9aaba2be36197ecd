// tools/bench_result.cpp
#include "bench_result.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "machine.hpp"
#include "plan/linear_attention.hpp"
#include "plan/text.hpp"

namespace falchion::tools {
namespace {

using nlohmann::json;

const char* operation(const Attention&) { return "attention_forward"; }
const char* operation(const LinearProblem& a) { return linear_attention_name(a.pass); }

std::string sizes(const Attention& a) {
  return fmt::format("b:{}/h:{}_{}/s:{}_{}/d:{}_{}", a.b, a.h_q, a.h_k, a.s_q, a.s_k, a.d_qk, a.d_v);
}
std::string sizes(const LinearProblem& a) {
  return fmt::format("b:{}/h:{}_{}/s:{}/d:{}_{}", a.b, a.h_qk, a.h_v, a.s, a.d_qk, a.d_v);
}

std::string benchmark_name(const BenchResult& r) {
  return std::visit(
      [&](const auto& a) {
        std::string features = feature_name(a);
        for (char& c : features)
          if (c == ' ') c = '_';
        return fmt::format("{}/{}/{}/{}/{}/{}/threads:{}{}", operation(a), r.backend, r.level.empty() ? "any" : r.level,
                           name(a.dtype), sizes(a), features, r.threads, r.cold ? "/cold" : "");
      },
      r.problem);
}

json problem_json(const BenchResult& r) {
  json out = std::visit([](const auto& a) { return to_json(a); }, r.problem);
  if (r.chunk > 0) out["chunk"] = r.chunk;
  return out;
}

json entry(const BenchResult& r, std::size_t family) {
  return {{"family_index", family},        {"per_family_instance_index", 0},
          {"run_name", benchmark_name(r)}, {"repetitions", r.time.seconds.size()},
          {"threads", r.threads},          {"time_unit", "ms"}};
}

}  // namespace

DType dtype_of(const BenchProblem& problem) {
  return std::visit([](const auto& a) { return a.dtype; }, problem);
}

std::string problem_name(const BenchProblem& problem) {
  return std::visit([](const auto& a) { return problem_name(a); }, problem);
}

void BenchResult::hold_against(double flops_per_second, const std::string& unit_name, double bytes_per_second,
                               const std::string& memory_name) {
  const auto seconds = [](double work, double rate) { return rate > 0 ? work / rate : 0; };
  by_bytes = roof == Roof::memory ||
             (roof == Roof::slower && seconds(bytes, bytes_per_second) > seconds(flops, flops_per_second));
  limit = by_bytes ? bytes_per_second : flops_per_second;
  limit_name = limit == 0 ? "" : by_bytes ? memory_name : unit_name;
}

json benchmark_json(const std::vector<BenchResult>& results, const std::map<std::string, double>& peaks, double dram) {
  json benchmarks = json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const BenchResult& r = results[i];
    for (std::size_t k = 0; k < r.time.seconds.size(); ++k) {
      json run = entry(r, i);
      const double ms = r.time.seconds[k] * 1e3;
      run.update({{"name", benchmark_name(r)},
                  {"run_type", "iteration"},
                  {"repetition_index", k},
                  {"iterations", 1},
                  {"real_time", ms},
                  {"cpu_time", ms}});
      benchmarks.push_back(run);
    }
    const std::pair<const char*, double> aggregates[] = {
        {"mean", r.time.mean()}, {"median", r.time.median()}, {"stddev", r.time.stddev()}};
    for (const auto& [aggregate, seconds] : aggregates) {
      json row = entry(r, i);
      row.update({{"name", benchmark_name(r) + "_" + aggregate},
                  {"run_type", "aggregate"},
                  {"aggregate_name", aggregate},
                  {"aggregate_unit", "time"},
                  {"iterations", r.time.seconds.size()},
                  {"real_time", seconds * 1e3},
                  {"cpu_time", seconds * 1e3}});
      if (std::string(aggregate) == "median")
        row.update({{"flops", r.flops / seconds},
                    {"bytes_per_second", r.bytes / seconds},
                    {"spread", r.time.spread()},
                    {"share_of_limit", r.share()},
                    {"limit", r.limit},
                    {"limit_name", r.limit_name},
                    {"label", r.describe},
                    {"cache", r.cold ? "cold" : "warm"},
                    {"dram_beside", r.dram_beside},
                    {"problem", problem_json(r)}});
      benchmarks.push_back(row);
    }
  }
  json context = benchmark_context();
  context["measured_peak_flops"] = peaks;
  context["measured_dram_bytes_per_second"] = dram;
  return {{"context", context}, {"benchmarks", benchmarks}};
}

}  // namespace falchion::tools
