// tools/verify/storage.cpp: see storage.hpp.
#include "storage.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "tool.hpp"

namespace falchion::tools::storm {
namespace {

bool has(unsigned axes, std::size_t axis) { return (axes >> axis & 1U) != 0; }

bool is_order(std::string text) {
  std::sort(text.begin(), text.end());
  return text == "0123";
}

}  // namespace

Strides strides_of(const Storage& storage, const std::array<std::int64_t, 4>& shape) {
  constexpr std::int64_t wild[4] = {std::int64_t{1} << 40, -7, 0, 12345};
  Strides out;
  std::int64_t step = 1, reach = 0;
  bool empty = false;
  for (std::size_t n = 4; n-- > 0;) {
    const auto axis = static_cast<std::size_t>(storage.order[n] - '0');
    const std::int64_t extent = has(storage.zero, axis) ? std::min<std::int64_t>(shape[axis], 1) : shape[axis];
    const std::int64_t last = std::max<std::int64_t>(extent - 1, 0);
    empty = empty || shape[axis] == 0;
    out.stride[axis] = has(storage.zero, axis) ? 0 : has(storage.flip, axis) ? -step : step;
    if (has(storage.flip, axis)) out.first += last * step;
    if (storage.wild && shape[axis] <= 1) out.stride[axis] = wild[axis];
    reach += last * step;
    step *= std::max<std::int64_t>(extent, 1);
    step += n == 3 ? storage.pad : n == 2 ? storage.gap : 0;
  }
  out.count = empty ? 0 : reach + 1;
  return out;
}

std::string to_text(const Storage& x) {
  std::string out;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : "+") + part; };
  if (x.order != Storage{}.order) add(x.order);
  if (x.pad != 0) add(fmt::format("pad{}", x.pad));
  if (x.gap != 0) add(fmt::format("gap{}", x.gap));
  if (x.start != 0) add(fmt::format("start{}", x.start));
  if (x.flip != 0) add(fmt::format("flip{}", x.flip));
  if (x.zero != 0) add(fmt::format("zero{}", x.zero));
  if (x.wild) add("wild");
  return out.empty() ? "dense" : out;
}

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
