// src/sm90/attention_backward/step.hpp: the order in which a CTA of Hopper's backward kernel visits its tiles of rows.
// All its warps follow it. It is plain C++, so tests/sm90_backward_step_test.cpp runs it on the host.
#pragma once

#include "base/host_device.hpp"

namespace falchion::sm90 {

/// The steps of a CTA: for each query head of its K/V head, the tiles of rows that see its keys, downwards from `first`
/// and then from the last one. A Tile has these ranges: heads [h, h + heads) and tiles [begin, end).
template <class Tile>
struct BackwardStep {
  const Tile& t;
  int first, head, tile, left;

  FALCHION_HD BackwardStep(const Tile& t, int first)
      : t(t), first(first), head(t.h), tile(first), left((t.end - t.begin) * t.heads) {}
  FALCHION_HD bool there() const { return left > 0; }
  FALCHION_HD void advance() {
    --left;
    if (--tile < t.begin) tile = t.end - 1;
    if (tile == first) ++head;
  }
};

/// The first tile of rows of CTA `number` of its head. Where sums have a fixed order that is the last tile. So under a
/// causal band the CTAs of a head begin with the same tile, and those whose keys come first, which also add first, end
/// last; no CTA then waits long for its predecessor. With any_order each CTA begins two tiles before its neighbour,
/// since it is slow when all CTAs of a head load the same tile, and add to the same sums, at the same time.
template <class Tile>
FALCHION_HD int first_tile(const Tile& t, int number, bool any_order) {
  if (!any_order || t.begin >= t.end) return t.end - 1;
  return t.end - 1 - 2 * number % (t.end - t.begin);
}

}  // namespace falchion::sm90
