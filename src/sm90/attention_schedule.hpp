// src/sm90/attention_schedule.hpp: in which order the CTAs work on the tiles of query rows.
#pragma once

#include <cstdint>

#include "gpu/attention_args.hpp"
#include "policy/host_device.hpp"

namespace falchion::sm90 {

/// An item is one tile of rows, item x = column * tiles + tile; a column is a head (and one part of its keys), whose
/// CTAs run side by side and share its K and V in the L2. A CTA takes one item in each round. In pairs (under a causal
/// band tile i has about i times the work of tile 1): the same CTA takes tiles i and tiles - 1 - i, so all pairs are
/// equally long and nobody has to hand them out at run time. Both are of one column, or, where that would leave the
/// middle one alone, of two neighbours.
struct Schedule {
  static constexpr int kNone = -1, kNoMore = -2;

  int items, tiles;
  bool pairs;

  /// What is dealt out: items, or pairs of them.
  FALCHION_HD int units() const { return !pairs ? items : across() ? items / 2 : items / tiles * ((tiles + 1) / 2); }
  /// The item of a CTA in a round; kNone when this round has none for it.
  FALCHION_HD int at(int round, int cta, int ctas) const {
    const int unit = (pairs ? round / 2 : round) * ctas + cta;
    if (unit >= units()) return kNoMore;
    if (!pairs) return unit;
    const bool second = round % 2 != 0;
    const int a_column = across() ? tiles : (tiles + 1) / 2, column = unit / a_column, i = unit - column * a_column;
    if (across()) return second ? (2 * column + 1) * tiles + tiles - 1 - i : 2 * column * tiles + i;
    if (second && 2 * i + 1 == tiles) return kNone;
    return column * tiles + (second ? tiles - 1 - i : i);
  }

  FALCHION_HD bool across() const { return tiles % 2 != 0 && items / tiles % 2 == 0; }
};

}  // namespace falchion::sm90
