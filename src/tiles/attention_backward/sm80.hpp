// src/tiles/attention_backward/sm80.hpp: the tile of each backward variant of sm80, and the threads and shared memory
// that it needs. It is plain C++, because the plan reads it even if the code of the variant is not built.
#pragma once

#include "args/gpu_attention_backward_args.hpp"
#include "tiles/tile_of.hpp"

namespace falchion::sm80 {

/// The kinds of tiles: two sweeps with products of 16 or of 32 bits, or once, where one kernel computes each pair of
/// tiles once and adds to sums of grad_q.
enum class BackwardKind { bits16, bits32, once };

/// One line of tiles.def. The owned side stays in the CTA: a tile of keys with the sums of grad_k and grad_v, or a tile
/// of query rows with the sums of grad_q. The visited side are the tiles of the other side, one after another.
struct BackwardTiles {
  BackwardKind kind = BackwardKind::bits16;
  int d = 0;
  int own = 0, visited = 0;  // keys or query rows
  int columns = 0;           // of its output that a CTA computes; a wider output is shared by several CTAs
  int threads = 0;           // of a CTA
  int stages = 0;            // visited tiles in flight
  int ctas = 0;              // CTAs that share an SM
};

constexpr BackwardTiles attention_backward_tiles(BackwardKind kind, int d) {
  constexpr BackwardTiles kTiles[] = {
#define TILE_attention_backward_sm80(tile_kind, head_dim, ...) \
  {.kind = BackwardKind::tile_kind, .d = head_dim, __VA_ARGS__},
#include "tiles/attention_backward/tiles.def"
  };
  return tile_of(kTiles, kind, d);
}

/// A row of f32 in shared memory has 16 bytes of padding, so that neighbouring rows are in different banks.
constexpr int kPadding = 4;
/// Bytes of the barriers of kind once and of the records of a CTA.
constexpr int kRecordBytes = 512;

constexpr int backward_shared_bytes(const BackwardTiles& t) {
  const int statistics = 8 * (t.own + 2 * t.visited);
  if (t.kind == BackwardKind::once) {  // K and V, the stages of q and grad_o, P and dS, statistics, records
    return 2 * (2 * t.own * t.d + 2 * t.stages * t.visited * t.d + 2 * t.own * t.visited) + 8 * t.stages * t.visited +
           kRecordBytes;
  }
  if (t.kind == BackwardKind::bits16) return 2 * t.d * (2 * t.own + 2 * t.stages * t.visited) + statistics;
  return 4 * ((t.d + kPadding) * (2 * t.own + 2 * t.stages * t.visited) + t.own * (t.visited + kPadding)) + statistics;
}

constexpr gpu::AttentionBackwardFacts attention_backward_facts(BackwardKind kind, int d) {
  const BackwardTiles t = attention_backward_tiles(kind, d);
  return {.d = d,
          .rows = kind == BackwardKind::once ? t.visited : t.own,
          .keys = t.own,
          .threads = t.threads,
          .ctas = t.ctas,
          .shared_bytes = backward_shared_bytes(t)};
}

}  // namespace falchion::sm80
