// src/sm80/linear_attention_tiles.hpp: the tile of each row of linear attention on sm80, and what the row needs for it.
// Plain C++: the plan reads it where the row's code is not built, the kernel's config where it is.
#pragma once

#include "args/gpu_linear_attention_args.hpp"

namespace falchion::sm80 {

/// plain: rows start at multiples of 16 bytes, no feature map, no decay; general: those, and decay; normalise: those,
/// and a normaliser of up to 64 columns; exact: every feature, nothing rounded to 16 bits between two products.
enum class LinearLevel { plain, general, normalise, exact };

/// Tokens of a chunk, columns of a head's state that a CTA has.
struct LinearTile {
  int chunk, columns, warps, stages, ctas;
};
/// Rows of 16 bits. Shared memory of 227 KiB: 2 x 104 (d 64), 152 (128), 176 (256).
constexpr LinearTile linear_tile(int d) { return {64, 64, 4, d <= 128 ? 3 : 2, d <= 64 ? 2 : 1}; }
/// Rows with f32 between all products: 147 (d 64), 211 (128), 189 (256).
constexpr LinearTile linear_exact_tile(int d) { return {64, 64, 8, d <= 128 ? 2 : 1, 1}; }

/// sweeps: 1 forward, 3 backward.
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
  const auto [chunk, columns, warps, stages, ctas] = tile;
  const int qkv = stages * (2 * chunk * d + chunk * columns), p_and_o = 2 * (chunk * chunk + chunk * columns);
  return linear_facts(tile, d, sweeps, 2 * (qkv + p_and_o) + 4 * 9 * chunk);  // and nine f32 a token, of the decay
}

/// general: with a feature map, decay or a normaliser, whose ten weights a token come twice.
constexpr gpu::LinearAttentionFacts linear_exact_facts(bool general, int d, int sweeps) {
  const LinearTile tile = linear_exact_tile(d);
  const auto [chunk, columns, warps, stages, ctas] = tile;
  const int qkv = stages * (2 * chunk * (d + 8) + chunk * (columns + 8)), p_and_o = 2 * chunk * (chunk + 4);
  return linear_facts(tile, d, sweeps, 4 * (qkv + p_and_o + 2 * (general ? 10 : 1) * chunk));
}

}  // namespace falchion::sm80
