// src/plan/tile_of.hpp: looks a tile up in what a back end has read from plan/tiles.def. It is plain C++ for kernels
// and for the plan.
#pragma once

#include <cstddef>

namespace falchion {

/// The kinds of tiles of linear attention: how large the numbers are that its products take.
enum class Products { bits16, bits32 };

/// The tile of a kind and head dim. One without rows, chunks and threads where the table has none, which the kernels'
/// configs and tests/plan_gpu_test.cpp find.
template <class Tile, std::size_t n, class Kind>
constexpr Tile tile_of(const Tile (&table)[n], Kind kind, int d) {
  for (const Tile& tile : table) {
    if (tile.kind == kind && tile.d == d) return tile;
  }
  return {};
}

}  // namespace falchion
