// src/sm90/attention_schedule.hpp: in which order the CTAs of Hopper's forward kernel work on the tiles of query rows.
// docs/design/sm90_forward.md has the orders that were tried.
#pragma once

#include <cstdint>

#include "args/gpu_attention_args.hpp"
#include "policy/host_device.hpp"

namespace falchion::sm90 {

/// An item is one tile of rows: item x = column * tiles + tile. A column is a head (or one part of its keys, where they
/// are split), whose CTAs run side by side and share its K and V in the L2.
///
/// The CTAs get units, and a unit is an item or a pair of items. Under a causal band tile i has about i times the work
/// of tile 1, so a pair consists of tiles i and tiles - 1 - i. All pairs then have the same work, and nobody has to
/// hand them out at run time. Both tiles of a pair are of one column. Where that would leave the middle tile alone,
/// because a column has an odd number of tiles, they are of two neighbouring columns.
struct Schedule {
  static constexpr int kNone = -1, kNoMore = -2;

  int tiles, items, units;
  bool pairs;

  static Schedule make(int items, int tiles, bool pairs) {
    if (!pairs || items == 0) return {tiles, items, items, false};
    return {tiles, items, tiles % 2 == 0 ? items / 2 : (items + 1) / 2, true};
  }
  /// The item of a unit; of a pair it is the first item or the second. kNone: this pair has no second item. kNoMore:
  /// there is no such unit.
  FALCHION_HD int at(int unit, bool second) const {
    if (static_cast<unsigned>(unit) >= static_cast<unsigned>(units)) return kNoMore;
    if (!pairs) return unit;
    const bool even = tiles % 2 == 0;
    const int in_column = even ? tiles / 2 : tiles, width = even ? tiles : 2 * tiles;
    const int column = unit / in_column;
    const int i = unit - column * in_column;
    const int first = column * width;
    const bool two = !even && first + tiles < items;
    if (!two && second && 2 * i + 1 == tiles) return kNone;
    return first + (second ? (two ? tiles : 0) + tiles - 1 - i : i);
  }
  /// Goes from one item of a CTA to its next one. It adds as unsigned, because past the last unit the sum may overflow.
  FALCHION_HD void advance(int ctas, int* unit, bool* second) const {
    *second = pairs && !*second;
    if (!*second) *unit = static_cast<int>(static_cast<unsigned>(*unit) + static_cast<unsigned>(ctas));
  }
};

}  // namespace falchion::sm90
