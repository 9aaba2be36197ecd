// tools/measure/peaks.cpp
#include "measure/peaks.hpp"

#include <algorithm>

#include "command/table.hpp"
#include "problem/levels.hpp"

namespace falchion::tools {

void Peaks::need(const std::string& unit) {
  if (!unit.empty() && flops_.count(unit) == 0) flops_[unit] = measure_peak_flops(unit, threads_);
}

DramReader& Peaks::dram() {
  if (!dram_) {
    dram_.emplace(threads_);
    bytes_ = dram_->best_bytes_per_second(5);
  }
  return *dram_;
}

void Peaks::measure_again() {
  for (auto& [unit, flops] : flops_) flops = std::max(flops, measure_peak_flops(unit, threads_));
  if (dram_) bytes_ = std::max(bytes_, dram_->best_bytes_per_second(5));
}

double Peaks::flops(const std::string& unit) const {
  const auto found = flops_.find(unit);
  return found == flops_.end() ? 0 : found->second;
}

std::string Peaks::text() const {
  std::string out;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : " · ") + part; };
  for (const auto& [unit, flops] : flops_)
    if (flops > 0) add(unit_title(unit) + " " + format_rate(flops, "FLOP/s"));
  if (bytes_ > 0) add("DRAM read " + format_rate(bytes_, "B/s"));
  return out.empty() ? "none measured" : out;
}

}  // namespace falchion::tools
