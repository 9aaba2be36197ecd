// src/judge/promoted_sums.hpp: the truncation of a sum of products of e4m3 on Hopper's tensor cores
// (src/sm90/gemm/bytes/sums.cuh).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "falchion/falchion.hpp"

namespace falchion::judge {

/// How far a sum is off by truncation: on average, and the variance.
struct CutOff {
  double mean = 0, variance = 0;

  /// The average loss plus three deviations.
  double most() const { return std::abs(mean) + 3 * std::sqrt(variance); }
};

/// The error of the sum of the products of row at[1] of A and row `column` of B, over k in [first, end), by truncation.
/// An instruction adds 32 products to the sum so far. Of each of these 33 numbers only 13 bits after the leading bit of
/// the largest are kept, and of the new sum as many after its own. The rest is cut off, towards 0. In units of the last
/// kept bit, a longer number loses half a unit on average, with a variance of 1 / 12. A product has 8 bits at most, so
/// it loses something only if it is below 2^8 units. The losses of numbers of one sign add up; the others contribute
/// their deviation. After each 128 products a new sum begins, and sums of such blocks are f32. CutOff::most() is
/// granted. (The limit is twice what is granted.)
CutOff cut_off(const GemmOperands& x, const std::array<std::int64_t, 4>& at, std::int64_t column, std::int64_t first,
               std::int64_t end);

}  // namespace falchion::judge
