// tools/measure/peak.hpp: measures the peak rates of this machine. Every share that the command prints is relative to
// them.
#pragma once

#include <cstdint>
#include <string>

#include "problem/buffer.hpp"

namespace falchion::tools {

/// Units that have their own peak: `amx` is that of bf16 tiles, and the others are f32 fused multiply-adds of that
/// vector width. Levels of variants.def belong to them by name ("generic" is plain C++ at the compiler's base level).
bool unit_here(const std::string& unit);

/// Flop/s of all `threads` together, the best of several short runs on random data in registers and L1. (With zeros AMX
/// would be some 15 % faster, because fewer bits switch and the clock is higher.) It is 0 if the CPU lacks the unit.
double measure_peak_flops(const std::string& unit, int threads);

/// Reads 1 GiB once with all threads. That measures the DRAM limit, and it also flushes the caches.
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
