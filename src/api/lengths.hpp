// src/api/lengths.hpp: checks lengths on the host before anything is computed from them.
#pragma once

#include <cstdint>

#include "api/check.hpp"

namespace falchion {

/// Checks that it starts at 0, never decreases, and ends at the total. name: "cu_seqlens_q". Reads b + 1 numbers.
void check_cu_seqlens(const char* name, const std::int32_t* cu, std::int64_t b, std::int64_t total, Check* check);

/// The longest of its sequences.
std::int64_t longest_sequence(const std::int32_t* cu, std::int64_t b);

/// Checks that the used lengths and the first keys are within their sequences. For the one-call forms, before a run on
/// the host. The problem has been planned. The run validates the operands; arrays that it will refuse (null,
/// misaligned, in another place, another b) are not read here.
Status check_lengths_of_host(const Attention& problem, const Operands& operands);
/// Other operations have no such lengths.
inline Status check_lengths_of_host(const auto&, const auto&) { return {}; }

}  // namespace falchion
