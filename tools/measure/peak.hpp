// tools/measure/peak.hpp: what this machine can do at best, measured here and now: the denominators of every share we print.
#pragma once

#include <cstdint>
#include <string>

#include "problem/buffer.hpp"

namespace falchion::tools {

/// Units with a peak of their own. `amx`: bf16 tiles; the others: f32 fused multiply-add of that vector width.
/// Levels of variants.def map onto them by name ("generic" is plain C++ at the compiler's base level).
bool unit_here(const std::string& unit);

/// Flop/s of all `threads` together, best of several short runs on random data in registers and L1 (zeros would
/// flatter AMX by some 15 %: less switching, higher clock). 0 where the unit is not here.
double measure_peak_flops(const std::string& unit, int threads);

/// Reads 1 GiB once with all threads: the measured DRAM limit, and a cache flush too.
class DramReader {
 public:
  explicit DramReader(int threads);
  double read();  ///< seconds for one pass
  double bytes() const { return static_cast<double>(buffer_.size()); }
  double best_bytes_per_second(int passes);

 private:
  Buffer buffer_;
  int threads_;
};

}  // namespace falchion::tools
