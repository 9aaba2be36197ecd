// src/sm90/attention_tiles.hpp: the tile of each forward row of Hopper, and what the row needs for it. Plain C++: the
// plan reads it where the row's code is not built, the kernel's config where it is.
#pragma once

#include "args/gpu_attention_args.hpp"

namespace falchion::sm90 {

enum class Level { brief, plain, mla, score };

/// One TILE_SM90 of plan/tiles_sm90.def.
struct Tile {
  Level level;
  int d, rows, keys, stages, ctas, consumer_registers, producer_registers, ping_pong;

  constexpr int d_v() const { return level == Level::mla ? 128 : d; }
  constexpr int threads() const { return 128 * (rows / 64 + 1); }  // a consumer warpgroup has 64 rows; one loads
  /// An SM has 228 KB, of which each CTA costs 1 more.
  constexpr int shared_limit() const { return (228 << 10) / ctas - 1024; }
  // Behind the tiles lie the records of tiles, worked out ahead of their use, and a record of rows for each consumer
  // warp (16 rows). The config asserts their sizes.
  static constexpr int kRecords = 3, kRecordBytes = 120, kRowsRecordBytes = 48, kBarrierBytes = 8;
  /// With so many stages of Q. The whole is a multiple of the tiles' alignment, 1024 bytes.
  constexpr int shared_bytes(int stages_q) const {
    const int records = kRecords * kRecordBytes + rows / 16 * kRowsRecordBytes;
    const int barriers = kBarrierBytes * (2 * stages_q + 4 * stages + 2 * kRecords);
    return 2 * (stages_q * rows * d + stages * keys * (d + d_v())) + (records + barriers + 1023) / 1024 * 1024;
  }
  constexpr int stages_q() const { return shared_bytes(2) <= shared_limit() ? 2 : 1; }
};

constexpr Tile attention_forward_tile(Level level, int d) {
  constexpr Tile kTiles[] = {
#define TILE_SM90(op, level, d, rows, keys, stages, ctas, consumer_registers, producer_registers, ping_pong) \
  {Level::level, d, rows, keys, stages, ctas, consumer_registers, producer_registers, ping_pong},
#include "plan/tiles_sm90.def"
  };
  for (const Tile& tile : kTiles) {
    if (tile.level == level && tile.d == d) return tile;
  }
  return {};
}

constexpr gpu::AttentionFacts attention_forward_facts(Level level, int d) {
  const Tile tile = attention_forward_tile(level, d);
  return {.d = d,
          .rows = tile.rows,
          .keys = tile.keys,
          .threads = tile.threads(),
          .stages = tile.stages,
          .ctas = tile.ctas,
          .shared_bytes = tile.shared_bytes(tile.stages_q())};
}

}  // namespace falchion::sm90
