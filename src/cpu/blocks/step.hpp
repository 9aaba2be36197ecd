// src/cpu/blocks/step.hpp: the units of the loop over keys.
#pragma once

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// The keys [block * a.keys + first, block * a.keys + end) against the rows of one tile, which is one O += P V. first
/// and end are multiples of 32.
struct Step {
  int tile = 0, first = 0, end = 0;
  bool masked = false;  // whether some row of the tile does not see some key of the step
  std::int64_t block = 0;
  int parity = 0;  // which of the two buffers of P it uses
};

/// The part [begin, stop) of a step whose scores are in memory at one time. S of a chunk is small enough to stay in L1
/// from the product that writes it to the softmax that reads it; a step is long enough to pay for moving O.
struct Chunk : Step {
  int begin = 0, stop = 0;
  int index = 0, count = 0;  // the number of this chunk in its step, and how many the step has
  int buffer = 0;            // which of the two buffers of S it uses
  FALCHION_INLINE int keys() const { return stop - begin; }
};

}  // namespace falchion::cpu::FALCHION_LEVEL
