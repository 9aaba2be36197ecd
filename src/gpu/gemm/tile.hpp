// src/gpu/gemm/tile.hpp: the tile of D and the part of k of each CTA. The tests run it on the host.
#pragma once

#include <cstdint>

#include "args/gpu_gemm_args.hpp"
#include "base/host_device.hpp"

namespace falchion::gpu {

/// A piece of work: a tile of D, or a part of the sums of one. The tiles of the last wave, which would not fill the
/// device, come last; their k is cut into parts for different CTAs. All numbers of tiles and parts are below 2^31.
struct GemmPiece {
  std::uint32_t batch = 0, row = 0, column = 0;
  std::uint32_t cut = 0, split = 0;  // the number among the tiles that are cut, and the part of it; 0 for a whole one
  bool whole = true;

  static FALCHION_HD constexpr std::int64_t tiles(const GemmArgs& a) { return a.tiles_m * a.tiles_n * a.batch; }
  /// The number of pieces of work.
  static FALCHION_HD constexpr std::int64_t count(const GemmArgs& a) {
    return a.whole + (tiles(a) - a.whole) * a.splits;
  }

  /// Tile number `id`. Tiles that run at the same time should share their rows of A and of B in the L2, so they are
  /// numbered in bands a few tiles high, column after column. In bands of 16, 264 concurrent tiles are some 16 x 16,
  /// which read a third of what 3 rows of 88 would.
  static FALCHION_HD constexpr GemmPiece tile(const GemmArgs& a, std::uint32_t id) {
    GemmPiece p;
    p.batch = a.by_entry.divide(id);
    const std::uint32_t in = id - p.batch * a.by_entry.value(), band = a.by_band.divide(in);
    const std::uint32_t in_band = in - band * a.by_band.value(), first = band * static_cast<std::uint32_t>(a.band);
    const bool last = first + static_cast<std::uint32_t>(a.band) > static_cast<std::uint32_t>(a.tiles_m);
    const Divisor& by_height = last ? a.by_last_height : a.by_height;
    p.column = by_height.divide(in_band);
    p.row = first + in_band - p.column * by_height.value();
    return p;
  }

  /// Piece number `id` of count(a). Parts with the same range of k of different tiles follow each other, since they
  /// share operands.
  static FALCHION_HD constexpr GemmPiece of(const GemmArgs& a, std::uint32_t id) {
    const auto first = static_cast<std::uint32_t>(a.whole);
    if (id < first) return tile(a, id);
    const std::uint32_t split = a.by_cut.divide(id - first), cut = id - first - split * a.by_cut.value();
    GemmPiece p = tile(a, first + cut);
    p.cut = cut;
    p.split = split;
    p.whole = false;
    return p;
  }
};

/// The extent of a piece in rows and columns of D and in k.
struct GemmTile {
  std::int64_t batch, row0, column0;  // with swiglu a tile has half as many columns as rows of B
  std::int64_t k0, k1;                // the part of k
  std::int64_t part;                  // its place among the partials; -1: the sums are whole
  std::int64_t first_row = 0;         // the row of the tile at which this CTA begins

  /// rows, columns: of a tile of D.
  FALCHION_HD constexpr GemmTile(const GemmArgs& a, const GemmPiece& p, int rows, int columns)
      : batch(p.batch),
        row0(std::int64_t{p.row} * rows),
        column0(std::int64_t{p.column} * columns),
        k0(p.whole ? 0 : p.split * a.depth),
        k1(p.whole || k0 + a.depth > a.k ? a.k : k0 + a.depth),
        part(p.whole ? -1 : std::int64_t{p.cut} * a.splits + p.split) {}
};

}  // namespace falchion::gpu
