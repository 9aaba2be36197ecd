// tools/verify/problem_limits.cpp: see problem_limits.hpp.
#include "problem_limits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kind.hpp"
#include "tool.hpp"

namespace falchion::tools::storm {
namespace {

constexpr std::int64_t kMostPad = std::int64_t{1} << 20;  // far above all that a storm draws
constexpr double kMostElements = 0x1p40;

void require_storage(const std::string& operand, const Storage& x) {
  const auto key = [&](const char* part) { return fmt::format("layout_{}: {}", operand, part); };
  require_between(key("pad"), x.pad, 0, kMostPad);
  require_between(key("gap"), x.gap, 0, kMostPad);
  require_between(key("start"), x.start, 0, kMostPad);
  require_between(key("flip"), x.flip, 0, kAllAxes);
  require_between(key("zero"), x.zero, 0, kAllAxes);
}

}  // namespace

void require_between(const std::string& key, std::int64_t x, std::int64_t least, std::int64_t most) {
  if (x < least || x > most)
    throw UsageError{fmt::format("--problem: {}: {} is not between {} and {}", key, x, least, most)};
}

void require_word(const char* key, const std::string& word, Words words) {
  if (std::find(words.begin(), words.end(), word) == words.end())
    throw UsageError{fmt::format("--problem: {}: \"{}\" is not one of {}", key, word, fmt::join(words, ", "))};
}

void require_list(const char* key, const Lengths& list, bool wanted, std::int64_t b, std::int64_t least) {
  const std::int64_t count = wanted ? b : 0;
  if (static_cast<std::int64_t>(list.size()) != count)
    throw UsageError{fmt::format("--problem: {}: {} numbers, the problem needs {}", key, list.size(), count)};
  for (const std::int64_t n : list) require_between(key, n, least, kInt32);
}

void require_total(const char* key, const Lengths& lengths, std::int64_t spare) {
  require_between(fmt::format("the sum of {} and spare", key), sum(lengths) + spare, 0, kInt32);
}

void require_elements(const char* what, std::initializer_list<std::int64_t> extents) {
  double elements = 1;
  for (const std::int64_t n : extents) elements *= static_cast<double>(std::max<std::int64_t>(n, 1));
  if (elements > kMostElements)
    throw UsageError{
        fmt::format("--problem: {}: {:g} elements are over the limit of {:g}", what, elements, kMostElements)};
}

void require_sound(const Problem& p) {
  const StormKind& kind = storm_kind(p);
  require_between("threads", p.threads, 0, kInt32);
  require_between("sms", p.sms, 0, 65535);
  require_between("segments", p.segments, 0, kInt32);
  require_between("spare", p.spare, 0, p.b() == 0 ? 0 : kInt32);  // packed rows with b = 0 are refused
  kind.require_sound(p);
  require_word("scores", p.data.shape, kind.scores);
  for (const std::string& planted : p.data.plant) require_word("plant", planted, kind.plants);
  for (const auto& [operand, storage] : p.storage) {
    require_word("layout_", operand, kind.operands);
    require_storage(operand, storage);
  }
}

}  // namespace falchion::tools::storm
