// tools/measure/peaks.hpp: the limits of this machine that a run of the command needs, each measured once or twice.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "measure/peak.hpp"

namespace falchion::tools {

class Peaks {
 public:
  explicit Peaks(int threads) : threads_(threads) {}

  void need(const std::string& unit);  ///< measures it unless it is known; an empty name asks for nothing
  DramReader& dram();                  ///< takes 1 GiB when first called
  /// Measures everything again. The larger number counts, since a limit is the rate of an undisturbed machine.
  void measure_again();

  int threads() const { return threads_; }
  double flops(const std::string& unit) const;  ///< flop/s; 0 unless measured
  double bytes_per_second() const { return bytes_; }
  const std::map<std::string, double>& units() const { return flops_; }
  std::string text() const;  ///< "AMX bf16 5.91 TFLOP/s · DRAM read 21.5 GB/s"

 private:
  int threads_;
  std::map<std::string, double> flops_;
  std::optional<DramReader> dram_;
  double bytes_ = 0;
};

}  // namespace falchion::tools
