// src/judge/promoted_sums.hpp: what Hopper's tensor cores cut off a sum of products of e4m3
// (src/sm90/gemm/bytes/sums.cuh).
#pragma once

#include <array>
#include <cstdint>

#include "falchion/falchion.hpp"

namespace falchion::judge {

/// How far the sum of the products of row at[1] of A and row `column` of B may be off by that. An instruction adds 32
/// products to the sum so far. Of each of these 33 numbers only 13 bits behind the first bit of the largest are kept,
/// and of the new sum as many behind its own. The rest is cut off, towards 0. With a unit for the last bit that is
/// kept, a number that has more loses half a unit on average, with a variance of unit^2 / 12. A product has 8 bits at
/// most, so it loses something only where it is below 2^8 units. What numbers of one sign lose adds up, and of what the
/// others lose the deviation is left. After each 128 products a new sum begins, and sums of such blocks are f32. This
/// returns the size of what is lost on average, and three deviations. (The limit is twice what is granted.)
double cut_off(const GemmOperands& x, const std::array<std::int64_t, 4>& at, std::int64_t column);

}  // namespace falchion::judge
