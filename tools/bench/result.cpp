// tools/bench/result.cpp
#include "bench/result.hpp"

#include <fmt/core.h>

#include "plan/text.hpp"

namespace falchion::tools {
namespace {

std::string sizes(const Attention& a) {
  return fmt::format("b:{}/h:{}_{}/s:{}_{}/d:{}_{}", a.b, a.h_q, a.h_k, a.s_q, a.s_k, a.d_qk, a.d_v);
}
std::string sizes(const LinearProblem& a) {
  return fmt::format("b:{}/h:{}_{}/s:{}/d:{}_{}", a.b, a.h_qk, a.h_v, a.s, a.d_qk, a.d_v);
}
std::string sizes(const Gemm& g) { return fmt::format("batch:{}/m:{}/n:{}/k:{}", g.batch, g.m, g.n, g.k); }

std::string sizes(const Norm& n) { return fmt::format("rows:{}/d:{}", n.rows, n.d); }

std::string sizes(const Quantise& q) { return fmt::format("b:{}/h:{}/s:{}/d:{}", q.b, q.h, q.s, q.d); }

std::string ragged_text(const BenchProblem& problem) {
  return problem.ragged > 0 ? fmt::format(" ragged {}", problem.ragged) : "";
}

std::string benchmark_name(const BenchResult& r) {
  return std::visit(
      [&](const auto& a) {
        std::string features = feature_name(a) + ragged_text(r.problem);
        for (char& c : features)
          if (c == ' ') c = '_';
        return fmt::format("{}/{}/{}/{}/{}/{}/threads:{}{}", entry_of(r.problem.op).operation, r.backend,
                           r.level.empty() ? "any" : r.level, name(a.dtype), sizes(a), features, r.threads,
                           r.cold ? "/cold" : "");
      },
      r.problem.problem);
}

Json problem_json(const BenchResult& r) {
  const Json out = std::visit([](const auto& a) { return to_json(a); }, r.problem.problem);
  if (r.problem.ragged > 0) return out.with("ragged", r.problem.ragged);
  return r.chunk > 0 ? out.with("chunk", r.chunk) : out;
}

}  // namespace

DType dtype_of(const BenchProblem& problem) {
  return std::visit([](const auto& a) { return a.dtype; }, problem.problem);
}

std::string problem_name(const BenchProblem& problem) {
  return std::visit([](const auto& a) { return problem_name(a); }, problem.problem) + ragged_text(problem);
}

void BenchResult::hold_against(double flops_per_second, const std::string& unit_name, double bytes_per_second,
                               const std::string& memory_name) {
  const auto seconds = [](double work, double rate) { return rate > 0 ? work / rate : 0; };
  by_bytes = roof == Roof::memory ||
             (roof == Roof::slower && seconds(bytes, bytes_per_second) > seconds(flops, flops_per_second));
  limit = by_bytes ? bytes_per_second : flops_per_second;
  limit_name = limit == 0 ? "" : by_bytes ? memory_name : unit_name;
}

Json benchmark_json(const std::vector<BenchResult>& results) {
  std::vector<Json> benchmarks;
  for (const BenchResult& r : results) {
    const std::string run_name = benchmark_name(r);
    const double seconds = r.time.median();
    benchmarks.push_back(Json::object({{"name", run_name + "_median"},
                                       {"run_name", run_name},
                                       {"run_type", "aggregate"},
                                       {"aggregate_name", "median"},
                                       {"aggregate_unit", "time"},
                                       {"family_index", benchmarks.size()},
                                       {"per_family_instance_index", 0},
                                       {"repetitions", r.time.seconds.size()},
                                       {"iterations", r.time.seconds.size()},
                                       {"threads", r.threads},
                                       {"time_unit", "ms"},
                                       {"real_time", seconds * 1e3},
                                       {"cpu_time", seconds * 1e3},
                                       {"flops", r.flops / seconds},
                                       {"bytes_per_second", r.bytes / seconds},
                                       {"spread", r.time.spread()},
                                       {"share_of_limit", r.share()},
                                       {"floor", r.floor() * 1e3},
                                       {"limit", r.limit},
                                       {"limit_name", r.limit_name},
                                       {"label", r.describe},
                                       {"cache", r.cold ? "cold" : "warm"},
                                       {"dram_beside", r.dram_beside},
                                       {"problem", problem_json(r)}}));
  }
  return Json::array(benchmarks);
}

}  // namespace falchion::tools
