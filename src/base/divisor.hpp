// src/base/divisor.hpp: division by a number known on the host, as a multiplication. On a GPU a division of 64 bits
// takes some 500 cycles and one of 32 bits some 100, and a tile of a GEMM begins with five of them.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion {

/// Divides numbers from 0 to 2^31 - 1 by one from 1 to 2^31 - 1.
class Divisor {
 public:
  constexpr Divisor() = default;
  /// n / d is the upper half of n m, shifted, with m = 2^(31 + s) / d rounded up, where 2^s is at least d (Granlund and
  /// Montgomery 1994).
  explicit constexpr Divisor(std::int64_t d) : divisor_(static_cast<std::uint32_t>(d)) {
    int s = 0;
    while ((std::int64_t{1} << s) < d) ++s;
    const std::uint64_t power = std::uint64_t{1} << (31 + s);
    multiplier_ = static_cast<std::uint32_t>((power + divisor_ - 1) / divisor_);
    shift_ = s - 1;
  }
  FALCHION_HD constexpr std::uint32_t divide(std::uint32_t n) const {
    if (divisor_ == 1) return n;
    return static_cast<std::uint32_t>(std::uint64_t{n} * multiplier_ >> 32) >> shift_;
  }
  FALCHION_HD constexpr std::uint32_t value() const { return divisor_; }

 private:
  std::uint32_t divisor_ = 1, multiplier_ = 0;
  int shift_ = 0;
};

}  // namespace falchion
