// tools/bench/result.hpp: one measured problem, and its place in Google Benchmark's JSON schema (written by hand, so
// that the command does not need libbenchmark).
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "falchion/falchion.hpp"
#include "measure/measure.hpp"
#include "problem/gemm_problem.hpp"
#include "problem/norm_problem.hpp"
#include "problem/operation.hpp"
#include "problem/quantise_problem.hpp"
#include "problem/work.hpp"

namespace falchion::tools {

struct BenchProblem {
  Op op = Op::attention;
  std::variant<Attention, BackwardProblem, LinearProblem, Gemm, Norm, NormBackwardProblem, Quantise> problem;
  std::int64_t ragged = 0;  // of a cache: the mean of the lengths in use, which differ; 0: each is s_k
};

DType dtype_of(const BenchProblem& problem);
std::string problem_name(const BenchProblem& problem);

/// The limit that a problem is compared with: for prefill it is arithmetic; for decode it is memory, as long as K and V
/// come from there; for linear attention and GEMMs it is whichever takes longer.
enum class Roof : std::uint8_t { arithmetic, memory, slower };

struct BenchResult {
  BenchProblem problem;
  std::string backend, level, unit, describe;
  int threads = 1, chunk = 0;  // chunk: tokens, of linear attention
  Roof roof = Roof::arithmetic;
  bool cold = false, on_gpu = false;
  Samples time;
  double flops = 0, bytes = 0;  // of one run
  double dram_beside = 0;       // bytes/s of the reads that flushed the caches between the runs; 0 when warm

  // The roof that share() refers to, once hold_against() has set it.
  bool by_bytes = false;
  double limit = 0;  // flop/s, or bytes/s if by_bytes; 0: there is none
  std::string limit_name;

  /// A rate of 0 is unknown and no roof.
  void hold_against(double flops_per_second, const std::string& unit_name, double bytes_per_second,
                    const std::string& memory_name);
  /// The least time that the roof allows; 0: there is none.
  double floor() const { return limit > 0 ? (by_bytes ? bytes : flops) / limit : 0; }
  double share() const { return floor() / time.median(); }
};

/// benchmarks[]: the median of each problem as an aggregate, with its spread and the counters flops, bytes_per_second
/// and share_of_limit. Single runs are left out: they would be nine tenths of the file.
Json benchmark_json(const std::vector<BenchResult>& results);

}  // namespace falchion::tools
