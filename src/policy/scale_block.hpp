// src/policy/scale_block.hpp: the block of Scaling::block128: a scale of A has 128 of k, and one of B has 128 of k by
// 128 rows.
#pragma once

#include <cstdint>

namespace falchion {

inline constexpr std::int64_t kScaleBlock = 128;

}  // namespace falchion
