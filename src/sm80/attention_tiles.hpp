// src/sm80/attention_tiles.hpp: the tile of each forward row of sm80, and what the row needs for it. Plain C++: the
// plan reads it where the row's code is not built, the kernel's config where it is.
#pragma once

#include "args/gpu_attention_args.hpp"

namespace falchion::sm80 {

enum class Level { plain, few, general, f32 };

/// One row of plan/tiles.def.
struct Tile {
  Level level;
  int d, rows, keys, warps, stages, q_in_registers, ctas;
};

constexpr Tile attention_forward_tile(Level level, int d) {
  constexpr Tile kTiles[] = {
#define TILE(op, backend, level, d, rows, keys, warps, stages, q_in_registers, ctas) \
  {Level::level, d, rows, keys, warps, stages, q_in_registers, ctas},
#include "plan/tiles.def"
  };
  for (const Tile& tile : kTiles) {
    if (tile.level == level && tile.d == d) return tile;
  }
  return {};
}

/// f32: head dims of K in a chunk of the ring (attention_forward_f32.cuh).
constexpr int f32_depth(int d) { return d < 256 ? 64 : 32; }

constexpr gpu::AttentionFacts attention_forward_facts(Level level, int d) {
  const Tile tile = attention_forward_tile(level, d);
  gpu::AttentionFacts facts{.d = d, .rows = tile.rows, .keys = tile.keys, .threads = 32 * tile.warps};
  facts.stages = tile.stages, facts.ctas = tile.ctas;
  facts.shared_bytes = level != Level::f32
                           ? 2 * (tile.rows * d + 2 * tile.stages * tile.keys * d)  // Q, and stages of K and V
                           : 4 * (tile.rows * (d + 4) + tile.rows * (tile.keys + 4) +
                                  tile.stages * tile.keys * f32_depth(d));  // Q, P and the ring
  return facts;
}

}  // namespace falchion::sm80
