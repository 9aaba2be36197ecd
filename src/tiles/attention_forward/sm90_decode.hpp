// src/tiles/attention_forward/sm90_decode.hpp: the tiles of Hopper's forward kernel for few query rows, what its
// variants need, and how their workspace is laid out. It is plain C++, because the plan reads it even where the code is
// not built, and the kernel's config reads it too. docs/design/sm90_decode.md describes the kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "args/gpu_attention_args.hpp"
#include "base/host_device.hpp"
#include "tiles/variant_kind.hpp"

namespace falchion::sm90 {

/// The longest sequence: its keys are counted in 32 bits, with room for where a band begins and ends.
inline constexpr std::int64_t kDecodeMostLength = (std::int64_t{1} << 28) - 1;

/// The most query rows of a K/V head that a launch takes in one tile.
inline constexpr int kDecodeMostRows = 32;

/// The kinds of variants that are this kernel: over K and V of q's type, and of 8 bits.
constexpr bool is_decode(VariantKind kind) { return kind == VariantKind::decode || kind == VariantKind::decode_bytes; }

/// One line of tiles.def.
struct DecodeTile {
  VariantKind kind{};
  int d = 0;
  int rows = 0;    // query rows of a tile, at most: a launch takes 8, 16 or 32 of them, the least that is enough
  int keys = 0;    // of a stage
  int warps = 0;   // consumer warps
  int stages = 0;  // K/V tiles in flight

  static constexpr int kProducerWarps = 4;
  /// The bytes of an element of K and V.
  constexpr int bytes() const { return kind == VariantKind::decode_bytes ? 1 : 2; }
  constexpr int threads() const { return 32 * (warps + kProducerWarps); }

  /// Of 8 bits a warp's time is that of instructions that wait for each other, so it has two blocks of sums at a time
  /// where there are registers for them: of 32 keys, or of 16 rows.
  constexpr bool has_two() const { return bytes() == 1 && d <= 128; }
  /// Keys of a stage that a warp has. 16 are the rows of a product.
  constexpr int keys_of_warp(int rows_of_launch) const { return has_two() && rows_of_launch == 8 ? 32 : 16; }
  /// Warps that share the keys of a stage. All consumer warps are some such groups.
  constexpr int slices(int rows_of_launch) const { return keys / keys_of_warp(rows_of_launch); }
  constexpr int groups(int rows_of_launch) const { return warps / slices(rows_of_launch); }
  /// Groups that have different rows of the same keys. The others have different keys: they take the stages in turn,
  /// and a stage always has the same ones. Else a group would wait for a phase of a barrier that has not begun, take it
  /// for one that is over, and read too early.
  constexpr int row_groups(int rows_of_launch) const {
    const int least = has_two() && rows_of_launch > 8 ? 16 : 8;  // rows of a warp
    return std::min(rows_of_launch / least, groups(rows_of_launch));
  }
  constexpr int turns(int rows_of_launch) const { return groups(rows_of_launch) / row_groups(rows_of_launch); }
  /// Query rows of a warp.
  constexpr int rows_a_warp(int rows_of_launch) const { return rows_of_launch / row_groups(rows_of_launch); }

  // In shared memory, behind the stages, lie the sums of the warps, which have 4 floats more than columns a row, so
  // that the lanes that write a column do not meet in a bank; m and l of each of their rows; what the threads have
  // heard of other CTAs, with m and l; whom the CTA hears; and barriers and counts. 8-bit caches have two scales a key.
  constexpr int pitch() const { return d + 4; }
  constexpr int shared_bytes(int rows_of_launch) const {
    const int ring = stages * keys * (bytes() == 1 ? d * 2 + 8 : d * 4),
              sums = warps * rows_a_warp(rows_of_launch) * (pitch() + 2) * 4, heard = 32 * warps * (16 + 8) + 16,
              rest = 8 * (2 * stages + 1) + 4 * (warps + kProducerWarps) + 8;
    return (ring + sums + heard + rest + 1023) / 1024 * 1024;
  }
};

constexpr DecodeTile decode_tile(VariantKind kind, int d) {
  constexpr DecodeTile kTiles[] = {
#define TILE_attention_forward_decode_sm90(its_kind, head_dim, ...) \
  {.kind = VariantKind::its_kind, .d = head_dim, __VA_ARGS__},
#include "tiles/attention_forward/tiles.def"
  };
  for (const DecodeTile& tile : kTiles) {
    if (tile.kind == kind && tile.d == d) return tile;
  }
  return {};
}

/// The rows of the kernel that takes `rows` query rows a K/V head.
constexpr int decode_rows(std::int64_t rows) { return rows <= 8 ? 8 : rows <= 16 ? 16 : kDecodeMostRows; }

constexpr gpu::AttentionFacts attention_decode_facts(VariantKind kind, int d) {
  const DecodeTile tile = decode_tile(kind, d);
  return {.d = d,
          .rows = tile.rows,
          .keys = tile.keys,
          .threads = tile.threads(),
          .stages = tile.stages,
          .ctas = 1,
          .shared_bytes = tile.shared_bytes(tile.rows)};
}

/// The workspace: a place for what each CTA tells another one, or with split_keys one for each part of the keys of each
/// row tile and K/V head, and behind all places a number for each. What is told of a row is its sums and a message with
/// m and l.
struct DecodeWorkspace {
  static constexpr std::size_t kMessage = 16;  // bytes (gpu/blocks/sm90_messages.cuh)

  /// Messages of a place.
  static FALCHION_HD constexpr int place(int rows, int d) { return rows * (d / 4 + 1); }
  static FALCHION_HD constexpr std::size_t numbers(std::int64_t places, int rows, int d) {
    return static_cast<std::size_t>(places) * static_cast<std::size_t>(place(rows, d)) * kMessage;
  }
  static constexpr std::size_t bytes(std::int64_t places, int rows, int d) {
    return numbers(places, rows, d) + static_cast<std::size_t>(places) * sizeof(std::uint64_t);
  }
};

}  // namespace falchion::sm90
