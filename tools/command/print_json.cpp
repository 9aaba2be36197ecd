// tools/command/print_json.cpp: see print_json.hpp.
#include "command/print_json.hpp"

#include <fmt/core.h>

namespace falchion::tools {
namespace {

/// Returns the length of the string at the beginning of the text, with both quotes.
std::size_t string_length(std::string_view text) {
  std::size_t at = 1;
  while (text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

}  // namespace

std::string pretty(std::string_view json, int indent) {
  std::string out;
  std::size_t depth = 0;
  const auto new_line = [&] { out.append("\n").append(depth * static_cast<std::size_t>(indent), ' '); };
  while (!json.empty()) {
    const char c = json.front();
    std::size_t taken = 1;
    if (c == '"') {
      taken = string_length(json);
      out += json.substr(0, taken);
    } else if ((c == '{' || c == '[') && (json[1] == '}' || json[1] == ']')) {
      taken = 2;
      out += json.substr(0, taken);
    } else if (c == '{' || c == '[') {
      out += c;
      ++depth;
      new_line();
    } else if (c == '}' || c == ']') {
      --depth;
      new_line();
      out += c;
    } else if (c == ',') {
      out += c;
      new_line();
    } else {
      out += c;
      if (c == ':') out += ' ';
    }
    json.remove_prefix(taken);
  }
  return out;
}

void print_json(const Json& json, int indent) { fmt::print("{}\n", pretty(json.text(), indent)); }

}  // namespace falchion::tools
