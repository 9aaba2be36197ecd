// src/tiles/linear_attention/sm80.hpp: the tile of each variant of linear attention on sm80, and the threads and shared
// memory that it needs. It is plain C++, because the plan reads it even if the code of the variant is not built. The
// kernel's config reads it too.
#pragma once

#include "args/gpu_linear_attention_args.hpp"
#include "tiles/linear_attention/products.hpp"
#include "tiles/tile_of.hpp"

namespace falchion::sm80 {

/// The kinds of variants. plain: rows start at multiples of 16 bytes, and there is neither feature map nor decay.
/// general: rows start anywhere, and there may be a feature map and (forward) decay. normalise: the same with a
/// normaliser, for head dims up to 64. exact: every feature, and nothing is rounded to 16 bits between two products.
enum class LinearKind { plain, general, normalise, exact };

/// One line of tiles.def.
struct LinearTile {
  Products kind = Products::bits16;
  int d = 0;
  int chunk = 0;    // in tokens
  int columns = 0;  // of a head's state that a CTA has
  int warps = 0;    // of a CTA
  int stages = 0;   // chunks in flight
  int ctas = 0;     // CTAs that share an SM
};

constexpr LinearTile linear_tile_of(Products kind, int d) {
  constexpr LinearTile kTiles[] = {
#define TILE_linear_attention_sm80(tile_kind, head_dim, ...) {.kind = Products::tile_kind, .d = head_dim, __VA_ARGS__},
#include "tiles/linear_attention/tiles.def"
  };
  return tile_of(kTiles, kind, d);
}
/// The tile of variants with 16-bit operands.
constexpr LinearTile linear_tile(int d) { return linear_tile_of(Products::bits16, d); }
/// The tile of variants with f32 between all products.
constexpr LinearTile linear_exact_tile(int d) { return linear_tile_of(Products::bits32, d); }

/// sweeps is 1 in the forward pass and 3 in the backward pass.
constexpr gpu::LinearAttentionFacts linear_facts(const LinearTile& tile, int d, int sweeps, int shared_bytes) {
  return {.d = d,
          .chunk = tile.chunk,
          .ctas = tile.ctas,
          .threads = 32 * tile.warps,
          .shared_bytes = shared_bytes,
          .columns = tile.columns,
          .sweeps = sweeps};
}

constexpr gpu::LinearAttentionFacts linear_attention_facts(int d, int sweeps) {
  const LinearTile tile = linear_tile(d);
  const int chunk = tile.chunk, columns = tile.columns;
  const int qkv = tile.stages * (2 * chunk * d + chunk * columns), p_and_o = 2 * (chunk * chunk + chunk * columns);
  return linear_facts(tile, d, sweeps, 2 * (qkv + p_and_o) + 4 * 9 * chunk);  // the decay takes nine f32 per token
}

/// general: the variant has feature map, decay and normaliser, which need ten weights per token instead of one. There
/// is space for the weights of two chunks.
constexpr gpu::LinearAttentionFacts linear_exact_facts(bool general, int d, int sweeps) {
  const LinearTile tile = linear_exact_tile(d);
  const int chunk = tile.chunk, columns = tile.columns;
  const int qkv = tile.stages * (2 * chunk * (d + 8) + chunk * (columns + 8)), p_and_o = 2 * chunk * (chunk + 4);
  return linear_facts(tile, d, sweeps, 4 * (qkv + p_and_o + 2 * (general ? 10 : 1) * chunk));
}

}  // namespace falchion::sm80
