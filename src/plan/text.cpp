// src/plan/text.cpp: numbers for people.
#include "plan/text.hpp"

#include <cmath>

namespace falchion {

std::string scaled_text(double value, std::string_view unit) {
  constexpr const char* kPrefix[] = {"", "k", "M", "G", "T", "P", "E"};
  int i = 0;
  for (; i < 6 && std::abs(value) >= 999.5; ++i) value /= 1000;
  char digits[32];
  const double size = std::abs(value);
  // A number without a prefix is most often a count; only of a small fraction, such as 0.5 flop/B, the digits matter.
  const bool is_count = i == 0 && (size >= 9.995 || value == std::floor(value));
  const int decimals = is_count || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed, decimals).ptr;
  return text(std::string_view(digits, static_cast<std::size_t>(end - digits)), " ", kPrefix[i], unit);
}

std::string bytes_text(double bytes) { return scaled_text(bytes, "B"); }

}  // namespace falchion
