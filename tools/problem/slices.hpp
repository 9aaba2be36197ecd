// tools/problem/slices.hpp: a long run cut into heads, so that it can say how far it is. The results are the same to the bit.
#pragma once

#include <vector>

#include "problem/instance.hpp"

namespace falchion::tools {

struct Slice {
  Attention problem;
  Operands operands;
};

/// One slice a sequence and K/V head (a query head where there is only one of those). Empty where slices would not be
/// bit-equal to the whole: dropout counts heads from 0, and a plan may cut keys otherwise for less work.
std::vector<Slice> slices_of(const Attention& problem, const Operands& operands, const Target& target);

/// Runs the slices one after the other with a progress line on stderr.
void run_with_progress(const std::vector<Slice>& slices, const Target& target);

}  // namespace falchion::tools
