// tools/bench/cases.hpp: the options of `falchion bench`, and its problems.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/result.hpp"
#include "problem/gemm_problem.hpp"
#include "problem/norm_problem.hpp"
#include "problem/problem_options.hpp"
#include "problem/quantise_problem.hpp"

namespace falchion::tools {

struct BenchOptions {
  std::vector<std::string> op;
  SizeOptions sizes;
  FeatureOptions features;
  CacheOptions cache;
  BackwardOptions backward;
  LinearOptions linear;
  GemmOptions gemm;
  NormOptions norm;
  QuantiseOptions quantise;
  TargetOptions where;
  std::string layout = "bshd", json_file;
  std::int64_t runs = 9;
  bool decode = false, lse = false, cold = false, warm = false, as_json = false;

  void add_to(Command& command);
};

/// For each operation, every combination of the given sizes, or a usual list if none is given. Throws UsageError for
/// options that no requested operation has.
std::vector<BenchProblem> bench_problems(const BenchOptions& options);

}  // namespace falchion::tools
