// src/sm80/attention_backward_tiles.hpp: the tile of each backward variant of sm80, and what the variant needs for it.
// It is plain C++, because the plan reads it even where the code of the variant is not built.
#pragma once

#include "args/gpu_attention_backward_args.hpp"
#include "plan/tile_of.hpp"

namespace falchion::sm80 {

/// One line of plan/tiles.def. What a CTA owns stays: a tile of keys with the sums of grad_k and grad_v, or a tile of
/// query rows with the sums of grad_q. What it visits are the tiles of the other side, one after another.
struct BackwardTiles {
  Products kind = Products::bits16;  // of what numbers are the products?
  int d = 0;
  int own = 0, visited = 0;  // keys or query rows
  int columns = 0;           // of its output that a CTA computes; a wider output is shared by several CTAs
  int threads = 0;           // of a CTA
  int stages = 0;            // visited tiles in flight
  int ctas = 0;              // CTAs that share an SM
};

constexpr BackwardTiles attention_backward_tiles(Products kind, int d) {
  constexpr BackwardTiles kTiles[] = {
#define TILE_attention_backward_sm80(products, head_dim, ...) {.kind = Products::products, .d = head_dim, __VA_ARGS__},
#include "plan/tiles.def"
  };
  return tile_of(kTiles, kind, d);
}

/// A row of f32 in shared memory is 16 bytes longer than its data, so that neighbouring rows lie in other banks.
constexpr int kPadding = 4;

constexpr int backward_shared_bytes(const BackwardTiles& t) {
  const int statistics = 8 * (t.own + 2 * t.visited);
  if (t.kind == Products::bits16) return 2 * t.d * (2 * t.own + 2 * t.stages * t.visited) + statistics;
  return 4 * ((t.d + kPadding) * (2 * t.own + 2 * t.stages * t.visited) + t.own * (t.visited + kPadding)) + statistics;
}

constexpr gpu::AttentionBackwardFacts attention_backward_facts(Products kind, int d) {
  const BackwardTiles t = attention_backward_tiles(kind, d);
  return {.d = d,
          .rows = t.own,
          .keys = t.own,
          .threads = t.threads,
          .ctas = t.ctas,
          .shared_bytes = backward_shared_bytes(t)};
}

}  // namespace falchion::sm80
