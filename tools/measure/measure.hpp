// tools/measure/measure.hpp: medians and spread of repeated runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "command/interrupt.hpp"

namespace falchion::tools {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The times of repeated runs, in seconds.
struct Samples {
  std::vector<double> seconds;

  double quantile(double q) const {
    if (seconds.empty()) return std::nan("");
    std::vector<double> s = seconds;
    std::sort(s.begin(), s.end());
    const double at = q * static_cast<double>(s.size() - 1);
    const auto i = static_cast<std::size_t>(at);
    return i + 1 < s.size() ? s[i] + (at - static_cast<double>(i)) * (s[i + 1] - s[i]) : s[i];
  }
  double median() const { return quantile(0.5); }
  double best() const { return quantile(0); }
  /// Half of the range of the middle half of the runs, divided by the median. One slow run does not change it.
  double spread() const { return (quantile(0.75) - quantile(0.25)) / 2 / median(); }
};

/// Times `runs` calls after one that warms caches, pages and threads. `before` runs before each and is not timed. An
/// interruption ends it after the current call, but at least one is timed.
template <class Run, class Before>
Samples sample(int runs, const Run& run, const Before& before) {
  run();
  Samples out;
  for (int i = 0; i < runs && (i == 0 || !interrupted()); ++i) {
    before();
    const auto start = Clock::now();
    run();
    out.seconds.push_back(seconds_since(start));
  }
  return out;
}
template <class Run>
Samples sample(int runs, const Run& run) {
  return sample(runs, run, [] {});
}

}  // namespace falchion::tools
