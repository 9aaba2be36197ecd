// tools/work.hpp: how much work a problem is, and what it is called in a table.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "falchion/falchion.hpp"

namespace falchion::tools {

/// 2 (d_qk + d_v) flop for each score that counts, b and h_q times. Every score counts without a band; half of them for
/// a causal square, as everybody reports it; those inside the band otherwise. Operands, when given, tell packed
/// lengths.
double flop_count(const Attention& problem, const Operands* operands = nullptr);

/// Bytes of q, k, v and o, each moved once: what no schedule can go below.
double byte_count(const Attention& problem, const Operands* operands = nullptr);

/// Fewer than 16 query rows a K/V head: bound by reading K and V, so that it is reported in GB/s.
bool is_decode(const Attention& problem);

std::string size_name(const Attention& problem);     // "b1 h9/3 s509 d64"
std::string feature_name(const Attention& problem);  // "causal softcap 30", "full"
std::string problem_name(const Attention& problem);  // both
nlohmann::json to_json(const Attention& problem);

}  // namespace falchion::tools
