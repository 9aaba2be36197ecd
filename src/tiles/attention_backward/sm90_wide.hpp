// src/tiles/attention_backward/sm90_wide.hpp: the tiles of Hopper's backward variants for head dims above 128, and the
// threads and shared memory that they need. It is plain C++, like sm90.hpp for the others.
#pragma once

#include <algorithm>

#include "tiles/attention_backward/sm90.hpp"

namespace falchion::sm90 {

/// One line of tiles.def. Every tile in shared memory has 64 lines, rows or keys. A CTA either owns one tile of
/// keys and visits rows, or owns two tiles of rows and visits keys.
struct WideTiles {
  BackwardKind kind = BackwardKind::wide;
  int d = 0;
  int held = 0;                                        // boxes of 64 columns of K and V that stay in registers
  int stages_q = 0, stages_grad_o = 0;                 // tiles of each in flight where keys are owned
  int stages_kv = 0;                                   // tiles of k and v together where rows are owned
  int consumer_registers = 0, producer_registers = 0;  // of a thread

  static constexpr int kLines = 64, kConsumers = 2;
  static constexpr int kStagesP = 2;        // tiles of P between the two warpgroups
  static constexpr int kBarrierBytes = 8;   // of a barrier
  static constexpr int kRecordBytes = 152;  // of the record of the CTA's tile and the fields beside it
  constexpr int rows() const { return kLines * kConsumers; }
  constexpr int keys() const { return kLines; }
  constexpr int threads() const { return 128 * (kConsumers + 1); }
  constexpr int tile_bytes() const { return 2 * kLines * d; }
  /// K and V without the held boxes, the stages of q with their statistics and of grad_o, P, and the barriers.
  constexpr int keys_bytes() const {
    const int tiles =
        tile_bytes() * (stages_q + stages_grad_o) + 2 * 2 * kLines * (d - 64 * held) + kStagesP * 2 * kLines * kLines;
    const int barriers = kBarrierBytes * (2 + 3 * (stages_q + stages_grad_o) + 2 * kStagesP);
    return tiles + (8 * stages_q * kLines + kRecordBytes + barriers + 1023) / 1024 * 1024;
  }
  /// Two tiles of Q and of dO, the stages of k and v, and the barriers.
  constexpr int rows_bytes() const {
    const int barriers = kBarrierBytes * (2 + 2 * stages_kv);
    return tile_bytes() * (2 * kConsumers + stages_kv) + (kRecordBytes + barriers + 1023) / 1024 * 1024;
  }
  constexpr int shared_bytes() const { return std::max(keys_bytes(), rows_bytes()); }
};

constexpr WideTiles attention_backward_wide_tiles(int d) {
  constexpr WideTiles kTiles[] = {
#define TILE_attention_backward_wide_sm90(tile_kind, head_dim, ...) \
  {.kind = BackwardKind::tile_kind, .d = head_dim, __VA_ARGS__},
#include "tiles/attention_backward/tiles.def"
  };
  return tile_of(kTiles, BackwardKind::wide, d);
}

constexpr gpu::AttentionBackwardFacts attention_backward_wide_facts(int d) {
  const WideTiles t = attention_backward_wide_tiles(d);
  return {
      .d = d, .rows = t.rows(), .keys = t.keys(), .threads = t.threads(), .ctas = 1, .shared_bytes = t.shared_bytes()};
}

}  // namespace falchion::sm90
