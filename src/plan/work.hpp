// src/plan/work.hpp: how much a problem asks for, counted from its sizes (packed and used lengths: their upper bounds).
#pragma once

#include "falchion/falchion.hpp"

namespace falchion {

/// (query, key) pairs of one head that the band lets see each other, of s_q x s_k.
double visible_pairs(const Attention& problem);
/// 2 (d_qk + d_v) flop for each visible pair of each query head.
double attention_flops(const Attention& problem);
/// q, k, v, o and the other operands that are there, each moved once.
double attention_bytes(const Attention& problem);

}  // namespace falchion
