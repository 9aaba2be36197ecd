// src/plan/text.hpp: makes text from parts: text("h_q = ", 7, " is odd").
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/names.hpp"

namespace falchion {

inline void append(std::string& out, std::string_view part) { out += part; }
inline void append(std::string& out, std::integral auto part) { out += std::to_string(part); }
inline void append(std::string& out, std::floating_point auto part) {
  char digits[32];  // independent of the process's locale
  const auto end = std::to_chars(digits, digits + sizeof digits, part, std::chars_format::general, 6).ptr;
  out.append(digits, end);
}

/// "bf16"; for a number that is no DType the number.
inline void append(std::string& out, DType x) {
  if (x <= kLastDType) {
    out += name(x);
  } else {
    out += std::to_string(static_cast<int>(x));
  }
}
template <class T>
concept Address = std::same_as<T, void*> || std::same_as<T, const void*>;  // no text: a const char* would convert
/// "0x7f3c": an address.
inline void append(std::string& out, Address auto address) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, reinterpret_cast<std::uintptr_t>(address), 16).ptr;
  out += "0x";
  out.append(digits, end);
}
/// "(2, 8, 4, 64)": a shape, strides.
inline void append(std::string& out, const std::array<std::int64_t, 4>& x) {
  for (std::size_t i = 0; i < 4; ++i) {
    out += i == 0 ? "(" : ", ";
    out += std::to_string(x[i]);
  }
  out += ")";
}

template <class... Parts>
std::string text(const Parts&... parts) {
  std::string out;
  (append(out, parts), ...);
  return out;
}

/// "1 item", "2 items": a number of things, whose plural ends in s.
inline std::string count_text(std::int64_t count, std::string_view thing) {
  return text(count, " ", thing, count == 1 ? "" : "s");
}

/// 33638400 -> "33.6 MB"; decimal units, three digits.
std::string bytes_text(double bytes);
/// 4294967296 -> "4.29 G" + unit.
std::string scaled_text(double value, std::string_view unit);

}  // namespace falchion
