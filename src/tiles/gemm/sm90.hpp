// src/tiles/gemm/sm90.hpp: the tiles of Hopper's GEMM kernels, and the threads and shared memory that they need. It is
// plain C++, because the plan reads it even if the code of the variant is not built. The kernel's config reads it too.
#pragma once

#include "args/gpu_gemm_args.hpp"
#include "tiles/tile_of.hpp"

namespace falchion::sm90 {

/// The types that have tiles of their own. The kernel of kind `few` has another kind of tile: sm90_few.hpp.
enum class GemmKind { bits16, e4m3, i8 };

/// One line of tiles.def.
struct GemmTiles {
  GemmKind kind = GemmKind::bits16;
  int d = 0;  // 0: it takes any size
  VariantTile name = VariantTile::usual;
  double flop_rate = 0;                  // of an SM, in a microsecond
  int rows = 0, columns = 0, depth = 0;  // of the product, of a CTA
  int waves = 1;                         // of 64 rows of each consumer warpgroup
  int cluster = 0;                       // CTAs that have the same columns and share the loads of B
  int stages = 0;
  int consumer_registers = 0, producer_registers = 0;  // of a thread; 0: as many as the code needs

  constexpr int consumers() const { return rows / (64 * waves); }
  /// D, and C and the residual, are moved in boxes of 64 columns, as are operands that lie along their rows. Where the
  /// columns are no multiple of 64, both operands must lie along k.
  constexpr int boxes() const { return (columns + 63) / 64; }
  constexpr bool only_along_k() const { return element_bytes() == 1 || columns % 64 != 0; }
  constexpr int element_bytes() const { return kind == GemmKind::bits16 ? 2 : 1; }
  /// Bytes of shared memory of each consumer warp for its stores.
  static constexpr int kOutBytes = 4096;
  static constexpr int kBarrierBytes = 8;
  constexpr int shared_bytes() const {
    const int of_columns = consumers() * columns * 4;  // scales or biases of a tile's columns, for each warpgroup
    const int small = (of_columns + 2 * stages * kBarrierBytes + 1023) / 1024 * 1024;
    return stages * (rows + columns) * depth * element_bytes() + 4 * consumers() * kOutBytes + small;
  }
};

constexpr GemmTiles gemm_tiles(GemmKind kind, VariantTile name) {
  constexpr GemmTiles kTiles[] = {
#define TILE_gemm_sm90(tile_kind, head_dim, tile_name, ...) \
  {.kind = GemmKind::tile_kind, .d = head_dim, .name = VariantTile::tile_name, __VA_ARGS__},
#include "tiles/gemm/tiles.def"
  };
  return tile_of(kTiles, kind, 0, name);
}

constexpr gpu::GemmFacts gemm_facts(GemmKind kind, VariantTile name) {
  const GemmTiles tile = gemm_tiles(kind, name);
  gpu::GemmFacts facts{.rows = tile.cluster * tile.rows, .columns = tile.columns, .depth = tile.depth};
  facts.band = 8 / tile.waves;
  facts.cluster = tile.cluster;
  facts.threads = 128 * (tile.consumers() + 1);
  facts.stages = tile.stages;
  facts.ctas = 1;
  facts.shared_bytes = tile.shared_bytes();
  facts.flop_rate = tile.flop_rate;
  return facts;
}

}  // namespace falchion::sm90
