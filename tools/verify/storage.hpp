// tools/verify/storage.hpp: makes strides of a Storage, and says how many elements its memory takes.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "problem.hpp"

namespace falchion::tools::storm {

struct Strides {
  std::array<std::int64_t, 4> stride{};
  std::int64_t first = 0;  // elements from the start of its memory to element (0, 0, 0, 0)
  std::int64_t count = 0;  // elements of its memory
};
Strides strides_of(const Storage& storage, const std::array<std::int64_t, 4>& shape);

std::string to_text(const Storage& storage);
Storage parse_storage(const std::string& text);  // throws UsageError

}  // namespace falchion::tools::storm
