// src/sm90/linear_attention_tiles.hpp: the tile of each variant of linear attention on Hopper, and what the variant
// needs for it. This is plain C++: the plan reads it, also where the variant's code is not built, and so does the
// kernel's config. docs/design/linear_attention.md says how the tiles were chosen.
#pragma once

#include "args/gpu_linear_attention_args.hpp"

namespace falchion::sm90 {

inline constexpr int kLinearChunk = 64, kLinearColumns = 64;  // tokens in a chunk; columns of a head's state in a CTA
inline constexpr int kLinearWideD = 128;  // in f32, the d_qk = d_v at which a CTA may have all columns of a head

/// `outputs` is the number of warpgroups that make the outputs. Shared memory has room for `stages` chunks of q, k and
/// v, for `slots` copies of the state and for `tiles` tiles of the outputs.
struct LinearTile {
  int outputs, stages, slots, tiles, threads;
};
/// bf16: beside the output warpgroups a CTA has one warpgroup that carries the state, a warp that loads and one that
/// stores.
constexpr LinearTile linear_tile(int d) {
  constexpr int kOutputs = 2;
  return {kOutputs, d <= 64 ? 4 : 3, d <= 64 ? 3 : 2, 2 * kOutputs, 64 + 128 * (1 + kOutputs)};
}
/// f32 as two f16 parts: beside the output warpgroup a CTA has one that carries the state, two splitters, and one whose
/// warps load and store.
constexpr LinearTile linear_halves_tile(int d) { return {1, 2, d <= 64 ? 2 : 1, 1, 128 * (1 + 1 + 2 + 1)}; }
/// Do the splitters split q too? Otherwise the output warpgroup does it.
constexpr bool linear_halves_split_q(int d) { return d <= 64; }
/// How many boxes of f32 numbers from memory there are, in both rings together.
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
  const int q = linear_halves_split_q(d) ? 2 * 2 * head : 1024;  // bytes; where it is not split, padding remains of it
  const int boxes = linear_halves_boxes(d) * columns, o = tile.tiles * columns;
  gpu::LinearAttentionFacts facts = linear_facts(tile.threads, d, sweeps, 2 * 2 * terms + q + 4 * (boxes + o) + 1024);
  if (d == kLinearWideD) facts.wide_d = d;
  return facts;
}

}  // namespace falchion::sm90
