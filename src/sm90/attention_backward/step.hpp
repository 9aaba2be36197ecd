// src/sm90/attention_backward/step.hpp: the order in which a CTA of Hopper's backward kernels visits its tiles of
// rows, which all its warps follow, how many CTAs add to their sums before it, and how many start at a time. It is
// plain C++, so tests/sm90_backward_step_test.cpp and sm80_turns_test.cpp run it on the host.
#pragma once

#include <cstdint>

#include "args/gpu_attention_backward_args.hpp"
#include "base/host_device.hpp"

namespace falchion::sm90 {

/// The steps of a CTA: the tiles of rows that see its keys, downwards from `first` and then from the last one, each in
/// all query heads of its K/V head. So the CTAs of a group of heads keep to the distance in which they started: head
/// after head, those with a longer way would fall behind in each head anew. A Tile has these ranges: heads
/// [h, h + heads) and tiles [begin, end).
template <class Tile>
struct BackwardStep {
  const Tile& t;
  int tile, head, left;

  FALCHION_HD BackwardStep(const Tile& t, int first)
      : t(t), tile(first), head(t.h), left((t.end - t.begin) * t.heads) {}
  FALCHION_HD bool there() const { return left > 0; }
  FALCHION_HD void advance() {
    --left;
    if (++head < t.h + t.heads) return;
    head = t.h;
    if (--tile < t.begin) tile = t.end - 1;
  }
};

/// The steps of a CTA that owns keys above head dim 128: for each query head of its K/V head the tiles of rows that see
/// the keys, from the last one downwards. Its consumers count tiles alone, so heads must follow one another.
template <class Tile>
struct WideStep {
  const Tile& t;
  int head, tile, left;

  FALCHION_HD explicit WideStep(const Tile& t) : t(t), head(t.h), tile(t.end - 1), left((t.end - t.begin) * t.heads) {}
  FALCHION_HD bool there() const { return left > 0; }
  FALCHION_HD void advance() {
    --left;
    if (--tile >= t.begin) return;
    tile = t.end - 1;
    ++head;
  }
};

/// The first tile of rows of CTA `number` of its head. Where sums have a fixed order that is the last tile. So under a
/// causal band the CTAs of a head begin with the same tile, and those whose keys come first, which also add first, end
/// last; no CTA then waits long for its predecessor. With any_order each CTA begins two tiles before its neighbour,
/// since it is slow when all CTAs of a head load the same tile, and add to the same sums, at the same time. CTAs of a
/// group of heads do keep together: apart, they would use more rows at a time than the L2 holds.
template <class Tile>
FALCHION_HD int first_tile(const Tile& t, int number, bool any_order) {
  if (!any_order || t.heads > 1 || t.begin >= t.end) return t.end - 1;
  return t.end - 1 - 2 * number % (t.end - t.begin);
}

/// Of the tiles of keys of a head so many should start at a time. Eight if CTAs take turns under a causal band, or any
/// that ends on the right: the fewer they are, the fewer wait for one that has started with them, and the more often
/// rows and their sums are read from memory. Else all: with equally long ways, CTAs that start later end later, and
/// with any_order nobody waits.
inline std::int64_t tiles_at_once(const gpu::AttentionBackwardArgs& a) {
  return a.right >= 0 && !a.any_order ? 8 : a.key_tiles;
}

/// The CTAs that add to a tile of rows before the one with the keys from own0 on: those of earlier keys from `first`
/// on, the first key that the rows see, below 0 if they see all.
FALCHION_HD constexpr int adders_before(int own0, std::int64_t first, int tile_keys) {
  return own0 / tile_keys - (first < 0 ? 0 : static_cast<int>(first / tile_keys));
}

}  // namespace falchion::sm90
