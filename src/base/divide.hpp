// src/base/divide.hpp: integer division, rounded up.
#pragma once

#include <cstdint>

namespace falchion {

/// a / b, rounded up, for a >= 0 and b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace falchion
