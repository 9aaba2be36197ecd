// tools/verify/storm.hpp: many random problems on many workers, what failed of them made small.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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
  double grace = 10;     // seconds over `seconds` in which failures are still made smaller
  /// How one problem is tried; tests put their own here.
  std::function<Outcome(const Problem&, Bench*, DeviceArena*, Watchdog::Slot*)> attempt = storm::attempt;
  bool as_json = false;
};

/// Runs them and prints a report; the exit code.
int run_storm(const StormOptions& options);
/// Runs just these and says of each what came out.
int run_problems(const std::vector<std::string>& texts, double patience, bool as_json);

/// Halves what can be halved and drops features, one after the other, while `fails` still says true of it. Once
/// `enough` says so, what is smallest by then stays.
Problem shrink(
    const Problem& problem, const std::function<bool(const Problem&)>& fails,
    const std::function<bool()>& enough = [] { return false; });

}  // namespace falchion::tools::storm
