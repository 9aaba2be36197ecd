// tools/verify/storm.hpp: runs many random problems on many workers, and shrinks those that fail.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "draw.hpp"
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
  Mix mix;               // of attention
  int workers = 0;       // 0: one a CPU
  double patience = 10;  // seconds that one run may take
  double grace = 10;     // seconds over `seconds` in which failures are still made smaller
  /// Tries one problem; tests replace it.
  std::function<Outcome(const Problem&, Bench*, DeviceArena*, Watchdog::Slot*)> attempt = storm::attempt;
  bool as_json = false;
};

/// Those of the requested types for which some path of the storm has kernels.
std::vector<DType> types_of(const StormOptions& options, Op op);

/// Runs them and prints a report; the exit code.
int run_storm(const StormOptions& options);
/// Runs only these problems and prints the result of each.
int run_problems(const std::vector<std::string>& texts, double patience, bool as_json);

/// Makes a problem smaller: it halves sizes and drops features, one after the other, as long as `fails` returns true
/// for the result. When `enough` returns true, it stops and returns the smallest problem so far.
Problem shrink(
    const Problem& problem, const std::function<bool(const Problem&)>& fails,
    const std::function<bool()>& enough = [] { return false; });

}  // namespace falchion::tools::storm
