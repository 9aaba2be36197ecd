// tools/bench_result.hpp: one measured problem, and its place in Google Benchmark's JSON schema (written by hand, so
// that the command does not need libbenchmark).
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"
#include "measure.hpp"

namespace falchion::tools {

struct BenchResult {
  Attention problem;
  std::string backend, level, unit, describe;
  int threads = 1;
  bool decode = false, cold = false, on_gpu = false;
  Samples time;
  double flops = 0, bytes = 0;  // of one run
  double dram_beside = 0;       // bytes/s of the reads that flushed the caches between the runs; 0 when warm
  double limit = 0;             // flop/s, or bytes/s for decode: what share() is of
  std::string limit_name;

  double share() const { return limit > 0 ? (decode ? bytes : flops) / time.median() / limit : 0; }
};

/// context and benchmarks[], each run as an iteration, then mean, median and stddev as aggregates with the counters
/// flops, bytes_per_second and share_of_limit. peaks: flop/s a unit.
nlohmann::json benchmark_json(const std::vector<BenchResult>& results, const std::map<std::string, double>& peaks,
                              double dram_bytes_per_second);

}  // namespace falchion::tools
