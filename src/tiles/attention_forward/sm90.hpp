// src/tiles/attention_forward/sm90.hpp: the tile of each forward variant on Hopper, and the threads and shared memory
// that it needs. It is plain C++: the plan reads it, even if the variant's code is not built, and so does the kernel's
// config. docs/design/sm90_forward.md gives the reasons for the tiles.
#pragma once

#include "args/gpu_attention_args.hpp"
#include "base/host_device.hpp"
#include "tiles/tile_of.hpp"

namespace falchion::sm90 {

/// The kinds of variants, which docs/notation.md and src/variants.def explain.
enum class Kind { plain, score, halves, pages, int8_scores, fp8 };

/// When the consumer warpgroups of a CTA take turns in starting their products.
enum class Turns { never, without_a_band, always };

/// Kind pages loads a tile of keys in pieces, each of as many keys as divide both a page and the tile. It takes pieces
/// of 8 keys or more: of those the lines of 128 bytes lie in shared memory as those of a whole tile.
inline constexpr int kLeastPiece = 8;
FALCHION_HD constexpr int keys_of_piece(std::int64_t page_size, int keys_of_tile) {
  const auto two = static_cast<int>(page_size & -page_size);  // the largest power of two that divides it
  return two < keys_of_tile ? two : keys_of_tile;
}

/// One line of tiles.def.
struct Tile {
  Kind kind = Kind::plain;
  int d = 0;
  VariantTile name = VariantTile::usual;
  int head_dim_v = 0;                                  // of V and O; 0: d
  int rows = 0, keys = 0;                              // there are 64 rows for each consumer warpgroup
  int stages = 0;                                      // K/V tiles in flight
  int ctas = 0;                                        // CTAs that share an SM
  int consumer_registers = 0, producer_registers = 0;  // of a thread
  Turns turns = Turns::never;
  int early = 0;  // how many of a thread's exponentials run before the wait for O, whose product still runs

  constexpr int d_v() const { return head_dim_v > 0 ? head_dim_v : d; }
  /// The 16-bit numbers for one number of Q, K and V. Kind halves splits an f32 number into two.
  constexpr int parts() const { return kind == Kind::halves ? 2 : 1; }
  /// The bytes of a number of Q and K; of V.
  constexpr int bytes_qk() const { return kind == Kind::int8_scores || kind == Kind::fp8 ? 1 : 2; }
  constexpr int bytes_v() const { return kind == Kind::fp8 ? 1 : 2; }
  /// The rows of ones that kind fp8 has below V^T.
  static constexpr int kOnes = 8;
  constexpr int rows_of_v() const { return kind == Kind::fp8 ? d_v() + kOnes : d_v(); }
  /// The columns of O that one product P V makes. Kind halves adds each product to O in f32, so a thread holds both. At
  /// d 256 O alone takes half of its registers.
  constexpr int columns() const { return kind == Kind::halves && d > 128 ? 64 : d_v(); }
  /// There is a consumer warpgroup for each 64 rows, and one more that loads.
  constexpr int threads() const { return 128 * (rows / 64 + 1); }
  /// The bytes of shared memory that a CTA may use. An SM has 228 KB, and each CTA takes 1 KB of it for the system.
  constexpr int shared_limit() const { return (228 << 10) / ctas - 1024; }
  // In shared memory, after the tiles of Q, K and V, are the records of tiles that the scheduler works out ahead, a
  // record of rows for each consumer warp (16 rows), barriers, and the words of tiles of keys. The config asserts their
  // sizes.
  static constexpr int kRecords = 2;
  /// The producer requests the next record when so many tiles of keys are left to load.
  static constexpr int kNear = 4;
  static constexpr int kRecordBytes = 120;
  static constexpr int kRowsRecordBytes = 48;
  static constexpr int kBarrierBytes = 8;
  /// The bytes of shared memory with stages_q stages of Q, a multiple of 1024, the alignment of the tiles.
  constexpr int shared_bytes(int stages_q) const {
    const int records = kRecords * kRecordBytes + rows / 16 * kRowsRecordBytes;
    const int barriers = kBarrierBytes * (2 * stages_q + 4 * stages + 2 * kRecords + 1);
    const int words = 4 * 2 * stages + (kind == Kind::fp8 ? 4 * 2 * 2 * rows : 0);  // and scales of rows
    const int of_qk = bytes_qk() * (stages_q * rows + stages * keys) * d,
              of_v = bytes_v() * stages * keys * rows_of_v();
    return parts() * (of_qk + of_v) + (records + barriers + words + 1023) / 1024 * 1024;
  }
  /// Q has two stages where they fit.
  constexpr int stages_q() const { return shared_bytes(2) <= shared_limit() ? 2 : 1; }
};

constexpr Tile attention_forward_tile(Kind kind, int d, VariantTile name = VariantTile::usual) {
  constexpr Tile kTiles[] = {
#define TILE_attention_forward_sm90(tile_kind, head_dim, tile_name, ...) \
  {.kind = Kind::tile_kind, .d = head_dim, .name = VariantTile::tile_name, __VA_ARGS__},
#include "tiles/attention_forward/tiles.def"
  };
  return tile_of(kTiles, kind, d, name);
}

constexpr gpu::AttentionFacts attention_forward_facts(Kind kind, int d, VariantTile name = VariantTile::usual) {
  const Tile tile = attention_forward_tile(kind, d, name);
  return {.d = d,
          .rows = tile.rows,
          .keys = tile.keys,
          .threads = tile.threads(),
          .stages = tile.stages,
          .ctas = tile.ctas,
          .shared_bytes = tile.shared_bytes(tile.stages_q())};
}

}  // namespace falchion::sm90
