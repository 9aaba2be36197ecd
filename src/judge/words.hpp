// src/judge/words.hpp: names of elements and numbers in the judges' messages.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace falchion::judge {

/// An element's name, such as "o[0, 3, 1, 7]".
inline std::string where(const char* name, const std::array<std::int64_t, 4>& at) {
  std::string out = std::string(name) + "[";
  for (std::size_t axis = 0; axis < 4; ++axis) out += (axis > 0 ? ", " : "") + std::to_string(at[axis]);
  return out + "]";
}

inline std::string number(double x) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.3g", x);
  return digits;
}

/// A complaint such as "o[0, 3, 1, 7] is nan, must be 1.5".
inline std::string mismatch(const char* name, const std::array<std::int64_t, 4>& at, double value, double wanted) {
  return where(name, at) + " is " + number(value) + ", must be " + number(wanted);
}

}  // namespace falchion::judge
