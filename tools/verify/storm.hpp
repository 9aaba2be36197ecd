// tools/verify/storm.hpp: many random problems on many workers, what failed of them made small.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "levels.hpp"
#include "problem.hpp"
#include "trial.hpp"

namespace falchion::tools::storm {

struct StormOptions {
  std::int64_t problems = 0;
  double seconds = 0;  // 0: no limit
  std::uint64_t seed = 1;
  std::string backend = "best", level;
  std::vector<Op> ops;
  std::vector<DType> types;
  int workers = 0;       // 0: one a CPU
  double patience = 10;  // seconds that one run may take
  bool as_json = false;
};

/// The ways to run an operation here that the options ask for.
std::vector<Path> storm_paths(const StormOptions& options, Op op, DType dtype);

/// Runs them and prints a report; the exit code.
int run_storm(const StormOptions& options);
/// Runs just these and says of each what came out.
int run_problems(const std::vector<std::string>& texts, double patience, bool as_json);

/// Halves what can be halved and drops features, one after the other, while `fails` still says true of it.
Problem shrink(const Problem& problem, const std::function<bool(const Problem&)>& fails);

}  // namespace falchion::tools::storm
