// src/plan/read_rate.hpp: the rate at which a launch that only reads gets through memory, measured
// (docs/design/sm90_decode.md).
#pragma once

#include <string_view>

namespace falchion {

struct ReadRate {
  std::string_view name, in_device;  // what CUDA's name of the device has in it: an H100 PCIe has other memory
  int sm;
  double bytes_per_second;
  bool is_of(std::string_view device) const { return device.find(in_device) != std::string_view::npos; }
};
inline constexpr ReadRate kReadRates[] = {{"H100", "H100 80GB HBM3", 90, 3.05e12}, {"H200", "H200", 90, 4.6e12}};

/// 0 for a device of which it is not known.
inline double read_rate_of(std::string_view device) {
  for (const ReadRate& rate : kReadRates) {
    if (rate.is_of(device)) return rate.bytes_per_second;
  }
  return 0;
}

}  // namespace falchion
