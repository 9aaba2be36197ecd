// src/api/lengths.hpp: what packed lengths on the host are asked before anything is computed from them.
#pragma once

#include <cstdint>

#include "api/check.hpp"

namespace falchion {

/// Does it start at 0, never fall, and end at the total? name: "cu_seqlens_q". Reads b + 1 numbers.
void check_cu_seqlens(const char* name, const std::int32_t* cu, std::int64_t b, std::int64_t total, Check* check);

/// The longest of its sequences.
std::int64_t longest_sequence(const std::int32_t* cu, std::int64_t b);

}  // namespace falchion
