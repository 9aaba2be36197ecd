// src/ladder/gemm/order.hpp: in which order the tiles of C are computed.
#pragma once

#include "base/host_device.hpp"

namespace falchion::ladder::gemm {

/// Which tile of C, counted in tiles.
struct TilePlace {
  int row, column;
};

/// Tile number `tile` of rows x columns. Bands of kBand rows are walked one after another, and within a band columns of
/// kBand tiles. So the tiles that are computed at a time are a patch of C that is about square, and need few rows of A
/// and columns of B.
template <int kBand>
FALCHION_HD TilePlace place_in_bands(int tile, int rows, int columns) {
  const int first = tile / (kBand * columns) * kBand;
  const int within = tile % (kBand * columns);
  const int high = rows - first < kBand ? rows - first : kBand;
  return {first + within % high, within / high};
}

}  // namespace falchion::ladder::gemm
