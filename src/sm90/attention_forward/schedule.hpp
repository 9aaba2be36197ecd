// src/sm90/attention_forward/schedule.hpp: the order of the tiles of query rows in Hopper's forward kernel.
// docs/design/sm90_forward.md has the orders that were tried.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/host_device.hpp"

namespace falchion::sm90 {

/// An item is one tile of rows: item x = column * tiles + tile. A column is a head (or one part of its keys, where they
/// are split). The first tile of a column has its last rows, which see the most keys under a causal band.
///
/// Items are processed in order of their places. Without sections the place of an item is its own number. With
/// sections, which are columns side by side, all first tiles of a section come before all its second tiles, and so on.
/// So the longest tiles of a section come first and the shortest come last, and at the end of the grid every CTA has
/// something short to do. (In a packed batch a column has the last sequence first, and each from its last rows on.) A
/// section has as many columns as fit into the L2 with their K and V. The last section also takes the columns that
/// would be left over, and some more (up to Width::most), so that there are more tiles to balance the end with.
struct Schedule {
  /// The width of sections in columns; 0: no sections.
  struct Width {
    std::int64_t section = 0;  // in each section but the last one
    std::int64_t most = 0;     // in the last one, at most; it is not below `section`
  };

  int tiles = 1;    // of a column
  int items = 0;    // in all
  int section = 0;  // columns of each section but the last one; 0: no sections
  int last = 0;     // the first column of the last section
  int rest = 0;     // columns of the last section

  static Schedule make(int items, int tiles, const Width& width) {
    const int columns = items / tiles, section = static_cast<int>(std::min<std::int64_t>(width.section, columns));
    if (section == 0) return {.tiles = tiles, .items = items};
    const int most = static_cast<int>(std::clamp<std::int64_t>(width.most, section, columns));
    const int last = (columns - most + section - 1) / section * section;
    return {tiles, items, section, last, columns - last};
  }
  /// The item at a place, which is below `items`.
  FALCHION_HD int at(int place) const {
    if (section == 0) return place;
    int column = place / (section * tiles) * section, width = section;
    if (column >= last) {
      column = last;
      width = rest;
    }
    const int within = place - column * tiles, tile = within / width;
    return (column + within - tile * width) * tiles + tile;
  }
};

}  // namespace falchion::sm90
