// src/judge/attention_eight.hpp: what a result of attention of q of 8 bits may be off by, element by element.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "falchion/falchion.hpp"
#include "judge/rule.hpp"

namespace falchion::judge {

/// The rule for o where v is e4m3: each element is within its bound, and of kMany or more the root mean square of the
/// errors is at most kOverNaive of the naive computation's, beside the slack. A P whose mantissa is made of a score is
/// off by 3.2 % in the root mean square, one that is rounded by 2.4 %. The elements of a row share the errors of its P,
/// so P must be many, too: kMany in all and kManyOfARow in the mean row. Else a few of them decide.
inline constexpr int kMany = 4096, kManyOfARow = 64;
inline constexpr double kOverNaive = 1.6;

/// Elements of o are in the order of a dense o; where nothing is written they are 0. An output unit comes on top.
struct EightBounds {
  std::vector<double> each;         // where v is e4m3: no element may be off by more
  std::vector<double> slack;        // the same: what is granted beside the naive computation in the root mean square
  double score = 0;                 // how far any score may be off
  std::int64_t rows = 0, seen = 0;  // rows that see a key, and the keys that they see: as many P are rounded

  EightBounds(const Attention& a, const Operands& x);
  bool has_many() const { return seen >= std::max<std::int64_t>(kMany, kManyOfARow * rows); }
};

}  // namespace falchion::judge
