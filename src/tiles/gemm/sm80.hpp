// src/tiles/gemm/sm80.hpp: the tile of each GEMM kernel of sm80, and the threads and shared memory that it needs. It is
// plain C++, because the plan reads it even if the code of the variant is not built. The kernel's config reads it too.
#pragma once

#include "args/gpu_gemm_args.hpp"
#include "tiles/tile_of.hpp"

namespace falchion::sm80 {

/// The types that have tiles of their own.
enum class GemmKind { bits16, bits32, e4m3, i8 };

/// One line of tiles.def.
struct GemmTiles {
  GemmKind kind = GemmKind::bits16;
  int d = 0;  // 0: it takes any size
  VariantTile name = VariantTile::usual;
  double flop_rate = 0;                  // of an SM, in a microsecond
  int rows = 0, columns = 0, depth = 0;  // of the tile of a CTA
  int threads = 0, stages = 0, ctas = 0;

  /// Except in 16 bits a block of k is lines of 4-byte words, with one word for each row. A word is an f32 number, an
  /// e4m3 number as f32, or four i8 numbers that are consecutive in k.
  constexpr int lines() const { return kind == GemmKind::i8 ? depth / 4 : depth; }
  /// The bytes of one operand in one stage: in 16 bits 128 for each of its rows, else its lines, each with four more
  /// words.
  constexpr int operand_bytes(int its_rows) const {
    return kind == GemmKind::bits16 ? its_rows * 128 : lines() * (its_rows + 4) * 4;
  }
  constexpr int stage_bytes() const { return operand_bytes(rows) + operand_bytes(columns); }
};

constexpr GemmTiles gemm_tiles(GemmKind kind, VariantTile name) {
  constexpr GemmTiles kTiles[] = {
#define TILE_gemm_sm80(tile_kind, head_dim, tile_name, ...) \
  {.kind = GemmKind::tile_kind, .d = head_dim, .name = VariantTile::tile_name, __VA_ARGS__},
#include "tiles/gemm/tiles.def"
  };
  return tile_of(kTiles, kind, 0, name);
}

constexpr gpu::GemmFacts gemm_facts(GemmKind kind, VariantTile name) {
  const GemmTiles tile = gemm_tiles(kind, name);
  gpu::GemmFacts facts{.rows = tile.rows, .columns = tile.columns, .depth = tile.depth, .threads = tile.threads};
  facts.band = 16;
  facts.stages = tile.stages;
  facts.ctas = tile.ctas;
  facts.shared_bytes = tile.stages * tile.stage_bytes();
  facts.flop_rate = tile.flop_rate;
  return facts;
}

}  // namespace falchion::sm80
