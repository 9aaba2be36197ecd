// tools/verify/storage.cpp: see storage.hpp.
#include "storage.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "tool.hpp"

namespace falchion::tools::storm {
namespace {

bool is_order(std::string text) {
  std::sort(text.begin(), text.end());
  return text == "0123";
}

}  // namespace

Storage parse_storage(const std::string& text) {
  Storage out;
  const auto number = [&](const std::string& part, std::size_t from, auto* to) {
    const auto [end, error] = std::from_chars(part.data() + from, part.data() + part.size(), *to);
    if (error != std::errc() || end != part.data() + part.size())
      throw UsageError{fmt::format("--problem: \"{}\" of the layout \"{}\" has no number", part, text)};
  };
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    if (part == "dense") continue;
    if (part == "wild")
      out.wild = true;
    else if (is_order(part))
      out.order = part;
    else if (part.starts_with("pad"))
      number(part, 3, &out.pad);
    else if (part.starts_with("gap"))
      number(part, 3, &out.gap);
    else if (part.starts_with("start"))
      number(part, 5, &out.start);
    else if (part.starts_with("flip"))
      number(part, 4, &out.flip);
    else if (part.starts_with("zero"))
      number(part, 4, &out.zero);
    else
      throw UsageError{fmt::format("--problem: \"{}\" of the layout \"{}\" is unknown", part, text)};
  }
  return out;
}

}  // namespace falchion::tools::storm
