// tools/problem/slices.hpp: a long run cut into heads, so that it can say how far it
// is. The results are the same to the bit.
#pragma once

#include <vector>

#include "problem/instance.hpp"

namespace falchion::tools {

struct Slice {
  Attention problem;
  Operands operands;
};

/// Query heads [h, h + heads) of sequence b, which share one K/V head. Packed sequences stay together.
Slice slice_of(const Attention& problem, const Operands& operands, std::int64_t b, std::int64_t h, std::int64_t heads);

/// One slice for each sequence and K/V head, or for each query head where there is only one K/V head. It is empty where
/// the slices would not be bit-equal to the whole: dropout counts heads from 0, and with less work a plan may cut the
/// keys in another way.
std::vector<Slice> slices_of(const Attention& problem, const Operands& operands, const Target& target);

/// Runs the slices one after the other with a progress line on stderr.
void run_with_progress(const std::vector<Slice>& slices, const Target& target);

}  // namespace falchion::tools
