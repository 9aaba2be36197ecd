// src/api/lengths.hpp: what lengths on the host are asked before anything is computed from them.
#pragma once

#include <cstdint>

#include "api/check.hpp"

namespace falchion {

/// Does it start at 0, never fall, and end at the total? name: "cu_seqlens_q". Reads b + 1 numbers.
void check_cu_seqlens(const char* name, const std::int32_t* cu, std::int64_t b, std::int64_t total, Check* check);

/// The longest of its sequences.
std::int64_t longest_sequence(const std::int32_t* cu, std::int64_t b);

/// Are the used lengths and the first keys in their sequences? For the one-call forms, before a run on the host. The
/// problem is one that was planned. The operands are validated by the run, and not here a second time: of what it
/// refuses (null, misaligned, in another place, another b) nothing is read.
Status check_lengths_of_host(const Attention& problem, const Operands& operands);
/// Other operations have no such lengths.
inline Status check_lengths_of_host(const auto&, const auto&) { return {}; }

}  // namespace falchion
