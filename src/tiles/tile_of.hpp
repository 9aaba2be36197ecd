// src/tiles/tile_of.hpp: looks a tile up in the tiles.def of an operation. src/tiles has what a plan knows of the GPU
// variants without their code: the tile of each, and the threads and shared memory that it needs (facts.hpp). The
// config of a kernel reads the same, so that no number is kept in two places. All of it is plain C++.
//
// A tiles.def has lines TILE(operation, back end, kind, head dim, fields). The including file defines
// TILE_<operation>_<back end>(kind, head dim, fields) for the tiles that it needs; all others are left out. Where kinds
// have several tiles for one head dim, the name of the tile precedes the fields. The fields are explained where they
// are declared, in sm80.hpp and sm90.hpp beside it.
#pragma once

#include <cstddef>

#include "tiles/variant_kind.hpp"

namespace falchion {

/// The types of variants, as variants.def names them.
enum class VariantType { f32, f16, bf16, e4m3, i8 };

/// The tile of a kind and head dim, or one without rows, chunks and threads if the table has none, which the kernels'
/// configs and tests/plan_gpu_test.cpp detect.
template <class Tile, std::size_t n, class Kind>
constexpr Tile tile_of(const Tile (&table)[n], Kind kind, int d) {
  for (const Tile& tile : table) {
    if (tile.kind == kind && tile.d == d) return tile;
  }
  return {};
}

/// The same of a kind that may have several tiles for one head dim.
template <class Tile, std::size_t n, class Kind>
constexpr Tile tile_of(const Tile (&table)[n], Kind kind, int d, VariantTile name) {
  for (const Tile& tile : table) {
    if (tile.kind == kind && tile.d == d && tile.name == name) return tile;
  }
  return {};
}

}  // namespace falchion
