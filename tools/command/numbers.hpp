// tools/command/numbers.hpp: converts text to numbers. The whole text must be a number, else it is refused. An error
// names the option, the text and the limit.
#pragma once

#include <fmt/core.h>

#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "tool.hpp"

namespace falchion::tools {

/// All of `text` as a number of type T. `whole` is the argument on the command line, shown if it has more than `text`.
template <class T>
T parse_number(std::string_view text, std::string_view option, std::string_view whole) {
  const bool signed_by_plus = text.size() > 1 && text[0] == '+' && text[1] != '-';  // from_chars accepts no plus
  const std::string_view digits = text.substr(signed_by_plus ? 1 : 0);
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc() && end == digits.data() + digits.size()) return value;
  std::string shown = fmt::format("{}: \"{}\"", option, text);
  if (whole != text) shown += fmt::format(" in \"{}\"", whole);
  if (error != std::errc::result_out_of_range)
    throw UsageError{fmt::format("{} is not a {}number", shown, std::is_integral_v<T> ? "whole " : "")};
  if constexpr (std::is_integral_v<T>) {
    throw UsageError{fmt::format("{} is not between {} and {}", shown, std::numeric_limits<T>::min(),
                                 std::numeric_limits<T>::max())};
  }
  throw UsageError{fmt::format("{} is beyond what a {}-bit float holds", shown, 8 * sizeof(T))};
}

}  // namespace falchion::tools
