// src/gpu/gemm_tile.hpp: which tile of D a CTA computes, over which part of k. The tests run it on the host.
#pragma once

#include <cstdint>

#include "args/gpu_gemm_args.hpp"
#include "policy/host_device.hpp"

namespace falchion::gpu {

struct GemmTile {
  std::int64_t batch = 0, split = 0;
  std::int64_t row0 = 0, column0 = 0;  // of D; with swiglu a tile has half as many columns of D as rows of B
  std::int64_t k0 = 0, k1 = 0;         // the part of k

  /// The tile number `id` of tiles_m * tiles_n * batch * splits, whose rows and columns (of D) are these. Tiles that
  /// run at the same time should share their rows of A and of B in the L2, so they are numbered in bands of kBand tiles
  /// down, column after column. 264 tiles then are some 16 x 16, which read a third of what 3 rows of 88 would.
  template <std::int64_t kBand>
  static FALCHION_HD constexpr GemmTile of(const GemmArgs& a, std::int64_t id, int rows, int columns) {
    const std::int64_t tiles = a.tiles_m * a.tiles_n, in = id % tiles, outer = id / tiles;
    const std::int64_t band = in / (kBand * a.tiles_n), first = band * kBand;
    const std::int64_t height = a.tiles_m - first < kBand ? a.tiles_m - first : kBand;
    const std::int64_t in_band = in - first * a.tiles_n;
    GemmTile t;
    t.batch = outer % a.batch;
    t.split = outer / a.batch;
    t.row0 = (first + in_band % height) * rows;
    t.column0 = in_band / height * columns;
    t.k0 = t.split * a.depth;
    t.k1 = t.k0 + a.depth < a.k ? t.k0 + a.depth : a.k;
    return t;
  }
};

}  // namespace falchion::gpu
