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
  int stages = 0;             // at most: as many as have room

  constexpr int consumers() const { return columns / 64; }  // warpgroups
  constexpr int threads() const { return 128 * consumers() + 32; }
  /// A row of sums in shared memory has four floats more than columns. So it starts 4 banks after the row before, and
  /// the four pairs of rows that the lanes of a warp write at a time start 8 banks apart: no two lanes share a bank.
  constexpr int pitch() const { return columns + 4; }
  /// A CTA takes all shared memory that Hopper gives it, since loads on their way are what memory's rate takes: with 64
  /// rows and 80 columns a load took 3 us on an H200, so 128 CTAs with 8 stages of B on the way read 3.4 TB/s.
  static constexpr int kSharedBytes = 227 * 1024;
  /// The bytes of the stages with tiles of `width` rows. The others are the sums and the barriers: two a stage, and two
  /// for the exchange of the sums.
  FALCHION_HD constexpr int ring_bytes(int width) const {
    const int sums = width * pitch() * 4, barriers = 8 * (2 * stages + 2);
    return (kSharedBytes - sums - barriers) / 1024 * 1024;
  }
  /// A stage has a block of k of the rows of B, and behind it one of A.
  FALCHION_HD constexpr int stage_bytes(int its_columns, int width) const { return (its_columns + width) * depth * 2; }
  FALCHION_HD constexpr int stages_of(int its_columns, int width) const {
    const int room = ring_bytes(width) / stage_bytes(its_columns, width);
    return room < stages ? room : stages;
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
          .shared_bytes = GemmFewTiles::kSharedBytes};
}

/// A CTA's place in its cluster: which of the tiles side by side it has, and which part of k. The parts of a tile have
/// ranks that follow each other.
struct GemmFewPlace {
  int part = 0, parts = 1, neighbour = 0, neighbours = 1;

  static FALCHION_HD constexpr GemmFewPlace of(const gpu::GemmArgs& a, int rank) {
    return {.part = a.neighbours == 1 ? rank : rank % a.splits,
            .parts = a.splits,
            .neighbour = a.neighbours == 1 ? 0 : rank / a.splits,
            .neighbours = a.neighbours};
  }
  FALCHION_HD constexpr int ctas() const { return parts * neighbours; }
  /// The rank of the CTA with another part of the same tile.
  FALCHION_HD constexpr int rank_of_part(int other) const { return neighbour * parts + other; }
  /// The rank of the CTA with the same part of another tile, and the set of all of these.
  FALCHION_HD constexpr int rank_of_neighbour(int other) const { return other * parts + part; }
  FALCHION_HD constexpr unsigned ranks_of_neighbours() const {
    unsigned ranks = 0;
    for (int other = 0; other < neighbours; ++other) ranks |= 1U << rank_of_neighbour(other);
    return ranks;
  }
};

/// A tile of D.
struct GemmFewTile {
  std::int64_t batch = 0, row0 = 0, column0 = 0;

  /// The clusters have groups of tiles side by side, which have the same rows; a.tiles_n counts groups. Groups with the
  /// same columns follow each other, so that they find their rows of B in the L2. There are less than 2^31 of them, so
  /// no division is of 64 bits. With one row of tiles and one batch entry, as in most problems, none is needed. A tile
  /// may begin at n or beyond: it has nothing to store.
  static FALCHION_HD constexpr GemmFewTile of(const gpu::GemmArgs& a, std::uint32_t group, int neighbour) {
    const auto tiles_m = static_cast<std::uint32_t>(a.tiles_m), groups_n = static_cast<std::uint32_t>(a.tiles_n);
    const std::uint32_t column = tiles_m == 1 ? group : group / tiles_m;
    const std::uint32_t batch = a.batch == 1 ? 0 : column / groups_n;
    GemmFewTile t;
    t.batch = batch;
    t.row0 = (group - column * tiles_m) * gemm_few_tiles().rows;
    t.column0 = std::int64_t{(column - batch * groups_n) * a.neighbours + neighbour} * a.columns;
    return t;
  }
  /// The number of groups.
  static FALCHION_HD constexpr std::uint32_t count(const gpu::GemmArgs& a) {
    return static_cast<std::uint32_t>(a.tiles_m * a.tiles_n * a.batch);
  }
};

/// The rows of a tile that a warp turns into D: every n-th one for n consumer warps of the CTAs that have the tile.
struct GemmFewRows {
  int first = 0, step = 0;

  static FALCHION_HD constexpr GemmFewRows of(int warp, int part, int parts) {
    return {.first = warp * parts + part, .step = 4 * gemm_few_tiles().consumers() * parts};
  }
};

/// The part of k of a CTA: whole blocks, at most one more than the other CTAs of its tile.
struct GemmFewPart {
  std::int64_t k0 = 0, k1 = 0;

  static FALCHION_HD constexpr GemmFewPart of(const gpu::GemmArgs& a, int part, int parts) {
    constexpr int kDepth = gemm_few_tiles().depth;
    const auto blocks = static_cast<std::uint32_t>((a.k + kDepth - 1) / kDepth);  // below 2^25, as TMA counts k
    const auto first_of = [&](int other) {
      return std::int64_t{parts == 1 ? blocks * other : blocks * other / static_cast<std::uint32_t>(parts)} * kDepth;
    };
    const std::int64_t end = first_of(part + 1);
    return {.k0 = first_of(part), .k1 = end < a.k ? end : a.k};
  }
};

}  // namespace falchion::sm90
