// src/sm90/attention_schedule.hpp: in which order the tiles of query rows are worked on by Hopper's forward kernel.
// docs/design/sm90_forward.md has the orders that were tried.
#pragma once

#include <cstdint>

#include "policy/host_device.hpp"

namespace falchion::sm90 {

/// An item is one tile of rows: item x = column * tiles + tile. A column is a head (or one part of its keys, where they
/// are split). The first tile of a column has its last rows, which see the most keys under a causal band.
///
/// Items are worked on in order of their places. Without sections the place of an item is its own number. With
/// sections, which are columns side by side, all first tiles of a section come before all its second tiles, and so on.
/// So the longest tiles of a section come first and the shortest come last, and at the end of the grid every CTA has
/// something short to do. A section is as large as its K and V fit into the L2 together.
struct Schedule {
  int tiles = 1;    // of a column
  int items = 0;    // in all
  int section = 0;  // columns of a section; 0: no sections

  static Schedule make(int items, int tiles, std::int64_t section) {
    const std::int64_t columns = items / tiles;
    return {tiles, items, static_cast<int>(section < columns ? section : columns)};
  }
  /// The item at a place, which is below `items`. The last section may have fewer columns than the others.
  FALCHION_HD int at(int place) const {
    if (section == 0) return place;
    const int column0 = place / (section * tiles) * section, within = place - column0 * tiles;
    const int columns = items / tiles - column0, width = columns < section ? columns : section;
    const int tile = within / width;
    return (column0 + within - tile * width) * tiles + tile;
  }
};

}  // namespace falchion::sm90
