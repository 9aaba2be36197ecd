// src/gpu/gemm/tile.hpp: which tile of D a CTA computes, over which part of k. The tests run it on the host.
#pragma once

#include <cstdint>

#include "args/gpu_gemm_args.hpp"
#include "base/host_device.hpp"

namespace falchion::gpu {

/// A piece of work: a tile of D, or a part of the sums of one. The tiles that would not fill the device come last, and
/// their k is cut into parts, each of which is somebody else's. All are numbers of tiles and parts, below 2^31.
struct GemmPiece {
  std::uint32_t batch = 0, row = 0, column = 0;
  std::uint32_t cut = 0, split = 0;  // which of the tiles that are cut, and which part of it; 0 of a whole one
  bool whole = true;

  static FALCHION_HD constexpr std::int64_t tiles(const GemmArgs& a) { return a.tiles_m * a.tiles_n * a.batch; }
  /// How many pieces of work there are.
  static FALCHION_HD constexpr std::int64_t count(const GemmArgs& a) {
    return a.whole + (tiles(a) - a.whole) * a.splits;
  }

  /// The tile of that number. Tiles that run at the same time should share their rows of A and of B in the L2, so they
  /// are numbered in bands of so many tiles down, column after column. In bands of 16, 264 tiles are some 16 x 16,
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

  /// Piece number `id` of count(a). Parts of the same k of different tiles follow each other, since they share what
  /// they read.
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

/// Where a piece lies, in rows and columns of D and in k.
struct GemmTile {
  std::int64_t batch, row0, column0;  // with swiglu a tile has half as many columns as rows of B
  std::int64_t k0, k1;                // the part of k
  std::int64_t part;                  // its place among the partials; -1: the sums are whole
  std::int64_t first_row = 0;         // the row of the tile at which this CTA begins

  /// Of tiles of so many rows and columns of D.
  FALCHION_HD constexpr GemmTile(const GemmArgs& a, const GemmPiece& p, int rows, int columns)
      : batch(p.batch),
        row0(std::int64_t{p.row} * rows),
        column0(std::int64_t{p.column} * columns),
        k0(p.whole ? 0 : p.split * a.depth),
        k1(p.whole || k0 + a.depth > a.k ? a.k : k0 + a.depth),
        part(p.whole ? -1 : std::int64_t{p.cut} * a.splits + p.split) {}
};

}  // namespace falchion::gpu
