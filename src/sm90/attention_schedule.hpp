// src/sm90/attention_schedule.hpp: in which order the CTAs work on the tiles of
// query rows.
#pragma once

#include <cstdint>

#include "args/gpu_attention_args.hpp"
#include "policy/host_device.hpp"

namespace falchion::sm90 {

/// An item is one tile of rows, item x = column * tiles + tile; a column is a
/// head (and one part of its keys), whose CTAs run side by side and share its K
/// and V in the L2. What is dealt out are units: items, or pairs of them. Under
/// a causal band tile i has about i times the work of tile 1, so a pair is
/// tiles i and tiles - 1 - i: all pairs are equally long and nobody has to hand
/// them out at run time. Both are of one column, or, where that would leave the
/// middle one alone, of two neighbours.
struct Schedule {
  static constexpr int kNone = -1, kNoMore = -2;

  int tiles, items, units;
  bool pairs;

  static Schedule make(int items, int tiles, bool pairs) {
    if (!pairs || items == 0) return {tiles, items, items, false};
    return {tiles, items, tiles % 2 == 0 ? items / 2 : (items + 1) / 2, true};
  }
  /// The item of a unit; of a pair the first one, then the second. kNone: this
  /// pair has one alone.
  FALCHION_HD int at(int unit, bool second) const {
    if (static_cast<unsigned>(unit) >= static_cast<unsigned>(units)) return kNoMore;
    if (!pairs) return unit;
    const bool even = tiles % 2 == 0;
    const int in_column = even ? tiles / 2 : tiles, width = even ? tiles : 2 * tiles;
    const int column = unit / in_column, i = unit - column * in_column, first = column * width;
    const bool two = !even && first + tiles < items;
    if (!two && second && 2 * i + 1 == tiles) return kNone;
    return first + (second ? (two ? tiles : 0) + tiles - 1 - i : i);
  }
  /// From one item of a CTA to its next. In unsigned: past the last unit it may
  /// wrap.
  FALCHION_HD void advance(int ctas, int* unit, bool* second) const {
    *second = pairs && !*second;
    if (!*second) *unit = static_cast<int>(static_cast<unsigned>(*unit) + static_cast<unsigned>(ctas));
  }
};

}  // namespace falchion::sm90
