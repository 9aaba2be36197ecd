// src/sm90/linear_attention_tiles.hpp: the tile of each row of linear attention on Hopper, and what the row needs for
// it. Plain C++: the plan reads it where the row's code is not built, the kernel's config where it is.
#pragma once

#include "args/gpu_linear_attention_args.hpp"

namespace falchion::sm90 {

inline constexpr int kLinearChunk = 64, kLinearColumns = 64;  // tokens; of a head's state, those of a CTA
inline constexpr int kLinearWideD = 128;  // f32: the d_qk = d_v at which a CTA may have all columns of a head

/// outputs: warpgroups that make them. stages, slots and tiles: copies in shared memory of a chunk's q, k and v, of
/// the state, of the outputs.
struct LinearTile {
  int outputs, stages, slots, tiles, threads;
};
/// bf16: beside the outputs a warpgroup that carries the state, a warp that loads, one that stores.
constexpr LinearTile linear_tile(int d) {
  constexpr int kOutputs = 2;
  return {kOutputs, d <= 64 ? 4 : 3, d <= 64 ? 3 : 2, 2 * kOutputs, 64 + 128 * (1 + kOutputs)};
}
/// f32 as two f16: beside them a warpgroup that carries the state, two that take numbers apart, one that moves them.
constexpr LinearTile linear_halves_tile(int d) { return {1, 2, d <= 64 ? 2 : 1, 1, 128 * (1 + 1 + 2 + 1)}; }
constexpr bool linear_halves_split_q(int d) { return d <= 64; }  // those two take q apart, too
/// Boxes of f32 as it comes, in two rings.
constexpr int linear_halves_boxes(int d) { return 3 + (linear_halves_split_q(d) ? 3 : 2); }

/// sweeps: 1 forward, 3 backward.
constexpr gpu::LinearAttentionFacts linear_facts(int threads, int d, int sweeps, int shared_bytes) {
  return {.d = d,
          .chunk = kLinearChunk,
          .ctas = 1,
          .threads = threads,
          .shared_bytes = shared_bytes,
          .columns = kLinearColumns,
          .sweeps = sweeps};
}

// The last 1024 bytes: barriers and numbers, up to the alignment of the tiles.
constexpr gpu::LinearAttentionFacts linear_attention_facts(int d, int sweeps) {
  const LinearTile tile = linear_tile(d);
  const int head = kLinearChunk * d, columns = kLinearChunk * kLinearColumns;
  const int elements = tile.stages * (2 * head + columns) + tile.slots * d * kLinearColumns + tile.tiles * columns;
  return linear_facts(tile.threads, d, sweeps, 2 * elements + 1024);
}

constexpr gpu::LinearAttentionFacts linear_halves_facts(int d, int sweeps) {
  const LinearTile tile = linear_halves_tile(d);
  const int head = kLinearChunk * d, columns = kLinearChunk * kLinearColumns;
  const int terms = tile.stages * (head + columns) + tile.slots * d * kLinearColumns;  // of two each: k, v and S
  const int q = linear_halves_split_q(d) ? 2 * 2 * head : 1024;                        // not taken apart: a place of 0
  const int boxes = linear_halves_boxes(d) * columns, o = tile.tiles * columns;
  gpu::LinearAttentionFacts facts = linear_facts(tile.threads, d, sweeps, 2 * 2 * terms + q + 4 * (boxes + o) + 1024);
  if (d == kLinearWideD) facts.wide_d = d;
  return facts;
}

}  // namespace falchion::sm90
