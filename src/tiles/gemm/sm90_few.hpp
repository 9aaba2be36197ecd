// src/tiles/gemm/sm90_few.hpp: the tiles of Hopper's GEMM kernel for few rows of A, each CTA's share of them, and the
// shared memory that it needs. It is plain C++, because the plan reads it even if the code is not built, and the tests
// run it.
#pragma once

#include <cstdint>

#include "args/gpu_gemm_args.hpp"
#include "base/host_device.hpp"

namespace falchion::sm90 {

/// The line of tiles.def.
struct GemmFewTiles {
  int rows = 0, columns = 0;  // of D, at most: the plan may choose fewer columns, the launch fewer rows
  int depth = 0;              // of a block of k
  int stages = 0;

  constexpr int consumers() const { return columns / 64; }  // warpgroups
  constexpr int threads() const { return 128 * consumers() + 32; }
  /// A row of sums in shared memory has four floats more than columns. So it starts 4 banks after the row before, and
  /// the four pairs of rows that the lanes of a warp write at a time start 8 banks apart: no two lanes share a bank.
  constexpr int pitch() const { return columns + 4; }
  /// The shared memory of a CTA with tiles of `width` rows. The barriers: two a stage, and two for the exchange of the
  /// sums.
  constexpr int shared_bytes(int width) const {
    const int ring = stages * (columns + width) * depth * 2, sums = width * pitch() * 4,
              barriers = 8 * (2 * stages + 2);
    return (ring + sums + barriers + 1023) / 1024 * 1024;
  }
};

constexpr GemmFewTiles gemm_few_tiles() {
  constexpr GemmFewTiles kTiles[] = {
#define TILE_gemm_few_sm90(kind, head_dim, ...) {__VA_ARGS__},
#include "tiles/gemm/tiles.def"
  };
  return kTiles[0];
}

constexpr gpu::GemmFacts gemm_few_facts() {
  constexpr GemmFewTiles kTile = gemm_few_tiles();
  return {.rows = kTile.rows,
          .columns = kTile.columns,
          .depth = kTile.depth,
          .threads = kTile.threads(),
          .stages = kTile.stages,
          .ctas = 1,
          .shared_bytes = kTile.shared_bytes(kTile.rows)};
}

/// A tile of D. The CTAs of a cluster have the same one.
struct GemmFewTile {
  std::int64_t batch = 0, row0 = 0, column0 = 0;

  /// Tiles with the same columns follow each other, so that they find their rows of B in the L2. There are less than
  /// 2^31 of them. With one row of tiles and one batch entry, as in most problems, no division is needed.
  static FALCHION_HD constexpr GemmFewTile of(const gpu::GemmArgs& a, std::int64_t id) {
    const auto tiles_m = static_cast<std::uint32_t>(a.tiles_m), tiles_n = static_cast<std::uint32_t>(a.tiles_n);
    const auto tile = static_cast<std::uint32_t>(id), column = tiles_m == 1 ? tile : tile / tiles_m;
    GemmFewTile t;
    t.batch = a.batch == 1 ? 0 : column / tiles_n;
    t.row0 = std::int64_t{tile - column * tiles_m} * gemm_few_tiles().rows;
    t.column0 = (column - t.batch * a.tiles_n) * a.columns;
    return t;
  }
  static FALCHION_HD constexpr std::int64_t count(const gpu::GemmArgs& a) { return a.tiles_m * a.tiles_n * a.batch; }
};

/// The rows of a tile that a warp turns into D: every n-th one for n consumer warps of a cluster.
struct GemmFewRows {
  int first = 0, step = 0;

  static FALCHION_HD constexpr GemmFewRows of(int warp, int rank, int ctas) {
    return {.first = warp * ctas + rank, .step = 4 * gemm_few_tiles().consumers() * ctas};
  }
};

/// The part of k of a CTA: whole blocks, at most one more than the other CTAs of its cluster.
struct GemmFewPart {
  std::int64_t k0 = 0, k1 = 0;

  static FALCHION_HD constexpr GemmFewPart of(const gpu::GemmArgs& a, int rank, int parts) {
    constexpr int kDepth = gemm_few_tiles().depth;
    const std::int64_t blocks = (a.k + kDepth - 1) / kDepth;
    const std::int64_t end = blocks * (rank + 1) / parts * kDepth;
    return {.k0 = blocks * rank / parts * kDepth, .k1 = end < a.k ? end : a.k};
  }
};

}  // namespace falchion::sm90
