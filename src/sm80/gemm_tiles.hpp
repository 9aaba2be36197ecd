// src/sm80/gemm_tiles.hpp: the tile of each GEMM kernel of sm80, and what the kernel needs for it. It is plain C++,
// because the plan reads it even where the code of the variant is not built. The kernel's config reads it too.
#pragma once

#include "args/gpu_gemm_args.hpp"
#include "plan/tile_of.hpp"

namespace falchion::sm80 {

/// One line of plan/tiles.def.
struct GemmTiles {
  Products kind = Products::bits16;
  int d = 0;                             // 0: it takes any size
  int rows = 0, columns = 0, depth = 0;  // of the tile of a CTA; a row of a block of k has 128 bytes
  int threads = 0, stages = 0, ctas = 0;
};

constexpr GemmTiles gemm_tiles(Products kind) {
  constexpr GemmTiles kTiles[] = {
#define TILE_gemm_sm80(tile_kind, head_dim, ...) {.kind = Products::tile_kind, .d = head_dim, __VA_ARGS__},
#include "plan/tiles.def"
  };
  return tile_of(kTiles, kind, 0);
}

constexpr gpu::GemmFacts gemm_facts(Products kind) {
  const GemmTiles tile = gemm_tiles(kind);
  gpu::GemmFacts facts{.rows = tile.rows, .columns = tile.columns, .depth = tile.depth, .threads = tile.threads};
  facts.stages = tile.stages;
  facts.ctas = tile.ctas;
  facts.shared_bytes = tile.stages * (tile.rows + tile.columns) * 128;
  return facts;
}

}  // namespace falchion::sm80
