// src/api/lengths.hpp: what lengths on the host are asked before anything is computed from them.
#pragma once

#include <cstdint>

#include "api/check.hpp"

namespace falchion {

/// Does it start at 0, never fall, and end at the total? name: "cu_seqlens_q". Reads b + 1 numbers.
void check_cu_seqlens(const char* name, const std::int32_t* cu, std::int64_t b, std::int64_t total, Check* check);

/// The longest of its sequences.
std::int64_t longest_sequence(const std::int32_t* cu, std::int64_t b);

/// Are the used lengths and the first keys in their sequences? For the one-call forms, before a run on the host. Only
/// what the host can read is looked at: the run refuses the rest by its place. The problem is one that was planned.
Status check_lengths_of_host(const Attention& problem, Pass pass, const Operands& operands);
/// Other operations have no such lengths.
inline Status check_lengths_of_host(const auto&, Pass, const auto&) { return {}; }

}  // namespace falchion
