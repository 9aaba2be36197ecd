// tools/bench_result.cpp
#include "bench_result.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "machine.hpp"
#include "plan/text.hpp"
#include "work.hpp"

namespace falchion::tools {
namespace {

using nlohmann::json;

std::string benchmark_name(const BenchResult& r) {
  std::string features = feature_name(r.problem);
  for (char& c : features)
    if (c == ' ') c = '_';
  const Attention& a = r.problem;
  return fmt::format("attention_forward/{}/{}/{}/b:{}/h:{}_{}/s:{}_{}/d:{}_{}/{}/threads:{}{}", r.backend,
                     r.level.empty() ? "any" : r.level, name(a.dtype), a.b, a.h_q, a.h_k, a.s_q, a.s_k, a.d_qk, a.d_v,
                     features, r.threads, r.cold ? "/cold" : "");
}

json entry(const BenchResult& r, std::size_t family) {
  return {{"family_index", family},        {"per_family_instance_index", 0},
          {"run_name", benchmark_name(r)}, {"repetitions", r.time.seconds.size()},
          {"threads", r.threads},          {"time_unit", "ms"}};
}

}  // namespace

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
                    {"problem", to_json(r.problem)}});
      benchmarks.push_back(row);
    }
  }
  json context = benchmark_context();
  context["measured_peak_flops"] = peaks;
  context["measured_dram_bytes_per_second"] = dram;
  return {{"context", context}, {"benchmarks", benchmarks}};
}

}  // namespace falchion::tools
