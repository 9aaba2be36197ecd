// tools/verify/storage.hpp: parses a Storage; what strides it means: src/api/problem_line.hpp.
#pragma once

#include <string>

#include "problem.hpp"

namespace falchion::tools::storm {

using line::Strides;
using line::strides_of;

Storage parse_storage(const std::string& text);  // throws UsageError

}  // namespace falchion::tools::storm
