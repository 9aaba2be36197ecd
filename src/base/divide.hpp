// src/base/divide.hpp: whole numbers divided upwards.
#pragma once

#include <cstdint>

namespace falchion {

/// The least whole number that is not below a / b, for a >= 0 and b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace falchion
