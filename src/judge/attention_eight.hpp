// src/judge/attention_eight.hpp: what a result of attention of q of 8 bits may be off by, element by element.
#pragma once

#include <cstdint>
#include <vector>

#include "falchion/falchion.hpp"
#include "judge/rule.hpp"

namespace falchion::judge {

/// Elements of o are in the order of a dense o; where nothing is written they are 0. An output unit comes on top.
struct EightBounds {
  std::vector<double> each;   // where v is e4m3: no element may be off by more
  std::vector<double> slack;  // the same: what is granted beside the naive computation in the root mean square
  double score = 0;           // how far any score may be off
  std::int64_t seen = 0;      // the keys that the rows see, all together: as many P are rounded

  EightBounds(const Attention& a, const Operands& x);
};

/// The rule for o where v is e4m3: each element is within its bound, and of kMany or more the root mean square of the
/// errors is at most kOverNaive of the naive computation's, beside the slack. The elements of a row share the errors of
/// its P. So P must be as many too, or a few of them decide the root mean square.
inline constexpr int kMany = 4096;
inline constexpr double kOverNaive = 1.35;

}  // namespace falchion::judge
