// src/tiles/linear_attention/sm90.hpp: the tile of each variant of linear attention on Hopper, and the threads and
// shared memory that it needs. It is plain C++: the plan reads it, even if the variant's code is not built, and so does
// the kernel's config. docs/design/linear_attention.md gives the reasons for the tiles.
#pragma once

#include "args/gpu_linear_attention_args.hpp"
#include "tiles/linear_attention/products.hpp"
#include "tiles/tile_of.hpp"

namespace falchion::sm90 {

inline constexpr int kLinearChunk = 64, kLinearColumns = 64;  // tokens in a chunk; columns of a head's state in a CTA
inline constexpr int kLinearWideD = 128;  // in f32, the d_qk = d_v at which a CTA may have all columns of a head

/// One line of tiles.def.
struct LinearTile {
  Products kind = Products::bits16;
  int d = 0;
  int outputs = 0;  // warpgroups that make the outputs
  int stages = 0;   // chunks of q, k and v in shared memory
  int slots = 0;    // copies of the state there
  int tiles = 0;    // tiles of the outputs there
  int threads = 0;  // of a CTA
};

constexpr LinearTile linear_tile_of(Products kind, int d) {
  constexpr LinearTile kTiles[] = {
#define TILE_linear_attention_sm90(tile_kind, head_dim, ...) {.kind = Products::tile_kind, .d = head_dim, __VA_ARGS__},
#include "tiles/linear_attention/tiles.def"
  };
  return tile_of(kTiles, kind, d);
}
/// The tile of variants in bf16.
constexpr LinearTile linear_tile(int d) { return linear_tile_of(Products::bits16, d); }
/// The tile of variants in f32, which is split into two f16 parts.
constexpr LinearTile linear_halves_tile(int d) { return linear_tile_of(Products::bits32, d); }
/// Whether the splitters split q too. Otherwise the output warpgroup does it.
constexpr bool linear_halves_split_q(int d) { return d <= 64; }
/// The boxes of f32 numbers from memory, in both rings together.
constexpr int linear_halves_boxes(int d) { return 3 + (linear_halves_split_q(d) ? 3 : 2); }

/// sweeps: 1 in the forward pass, 3 in the backward pass.
constexpr gpu::LinearAttentionFacts linear_facts(int threads, int d, int sweeps, int shared_bytes) {
  return {.d = d,
          .chunk = kLinearChunk,
          .ctas = 1,
          .threads = threads,
          .shared_bytes = shared_bytes,
          .columns = kLinearColumns,
          .sweeps = sweeps};
}

// The last 1024 bytes of shared memory are for barriers and numbers, rounded up to the alignment of the tiles.
constexpr gpu::LinearAttentionFacts linear_attention_facts(int d, int sweeps) {
  const LinearTile tile = linear_tile(d);
  const int head = kLinearChunk * d, columns = kLinearChunk * kLinearColumns;
  const int elements = tile.stages * (2 * head + columns) + tile.slots * d * kLinearColumns + tile.tiles * columns;
  return linear_facts(tile.threads, d, sweeps, 2 * elements + 1024);
}

constexpr gpu::LinearAttentionFacts linear_halves_facts(int d, int sweeps) {
  const LinearTile tile = linear_halves_tile(d);
  const int head = kLinearChunk * d, columns = kLinearChunk * kLinearColumns;
  const int terms = tile.stages * (head + columns) + tile.slots * d * kLinearColumns;  // f16 in one part of k, v and S
  const int q = linear_halves_split_q(d) ? 2 * 2 * head : 1024;  // bytes; if q is not split, its padding remains
  const int boxes = linear_halves_boxes(d) * columns, o = tile.tiles * columns;
  gpu::LinearAttentionFacts facts = linear_facts(tile.threads, d, sweeps, 2 * 2 * terms + q + 4 * (boxes + o) + 1024);
  if (d == kLinearWideD) facts.wide_d = d;
  return facts;
}

}  // namespace falchion::sm90
