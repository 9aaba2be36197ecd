// src/args/number.hpp: the type of an operand that a kernel learns only when it runs.
#pragma once

#include <cstdint>

namespace falchion {

enum class Number : std::uint8_t { f32, f16, bf16, e4m3, i8 };

}  // namespace falchion
