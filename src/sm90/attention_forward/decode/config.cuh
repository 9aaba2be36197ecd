// src/sm90/attention_forward/decode/config.cuh: tiles, layouts and shared memory of Hopper's forward kernel for few
// query rows.
#pragma once

#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cstdint>
#include <type_traits>

#include "gpu/blocks/barrier.cuh"
#include "sm90/attention_forward/decode/schedule.hpp"
#include "tiles/attention_forward/sm90_decode.hpp"

namespace falchion::sm90 {

using bf16 = cutlass::bfloat16_t;
using f16 = cutlass::half_t;

/// Element: the type of q and o. Cached: that of k and v. kRows: the query rows of a tile. kPages: keys lie in the
/// pages of a cache. Keys are the rows of both products, and query rows their columns: S^T = K Q^T and O^T += V^T P^T.
template <class Element_, class Cached_, int kD_, int kRows_, bool kPages_>
struct DecodeConfig {
  using Element = Element_;
  using Cached = Cached_;
  static constexpr int kBytes = static_cast<int>(sizeof(Cached));
  static constexpr bool kScaled = kBytes == 1;
  static constexpr VariantKind kKind = kScaled ? VariantKind::decode_bytes : VariantKind::decode;
  using Factor = std::conditional_t<kScaled, f16, Element>;  // of the products
  static constexpr DecodeTile kTile = decode_tile(kKind, kD_);
  static constexpr int kD = kD_, kRows = kRows_, kKeys = kTile.keys, kStages = kTile.stages;
  static constexpr bool kPages = kPages_, kParts = false;
  static constexpr int kWarps = kTile.warps, kConsumers = 32 * kWarps, kThreads = kTile.threads();
  static constexpr int kProducers = kThreads - kConsumers;
  static_assert(kD % 64 == 0 && kRows <= kTile.rows && kConsumers % kProducers == 0);

  static constexpr int kSlices = kTile.slices(kRows), kRowGroups = kTile.row_groups(kRows), kTurns = kTile.turns(kRows);
  static constexpr int kBlocks = kTile.rows_a_warp(kRows) / 8;    // of 8 query rows of a warp
  static constexpr int kPieces = kTile.keys_of_warp(kRows) / 16;  // of 16 keys of a warp
  static_assert(kSlices * kRowGroups * kTurns == kWarps && kRowGroups * kBlocks * 8 == kRows);
  static_assert((kTurns & (kTurns - 1)) == 0 && (kStages & (kStages - 1)) == 0 && kStages % kTurns == 0);

  // When warps and CTAs are added up, a thread has four columns of a row, and the consumers together have kLines rows.
  static constexpr int kFours = kD / 4, kLines = kConsumers / kFours;
  static constexpr int kPitch = kTile.pitch();

  static constexpr std::uint32_t kTileBytes = kKeys * kD * kBytes;  // of K or V in a stage
  static constexpr int kChunks = kD * kBytes / 16;                  // of 16 bytes, that a row of K has

  /// The messages of a place: first the sums of all rows, then m and l of each row.
  static constexpr int kPlace = DecodeWorkspace::place(kRows, kD);

  struct NoScales {};
  struct Scales {
    alignas(16) float of[kStages][2][kKeys];  // of the keys of a stage: K's and V's
  };
  struct Shared {
    // A tile of K and the tile of V at the same keys, as decode/cached_tile.cuh says.
    alignas(1024) Cached k_v[kStages][2][kKeys * kD];
    alignas(16) float sums[kWarps][8 * kBlocks][kPitch];
    float4 heard[kConsumers];
    float2 heard_m_l[kConsumers];
    DecodeHeard hears;  // whom this CTA hears of the segment
    float m[kWarps][8 * kBlocks], l[kWarps][8 * kBlocks];
    // full: all producers' copies have come. empty: the warps of a stage have read it. emptied: the places that this
    // CTA will read have been emptied, or with split_keys written.
    gpu::SplitBarrier full[kStages], empty[kStages], emptied;
    std::uint32_t of_warp[kThreads / 32];  // tiles of the sequences of each warp
    int sequence;                          // that of this CTA's last tile
    std::uint32_t first;                   // its first tile
    [[no_unique_address]] std::conditional_t<kScaled, Scales, NoScales> scales;
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes == kTile.shared_bytes(kRows));
};

/// The same tiles for a problem with split_keys: a part of the keys is all that a CTA adds up at a time.
template <class Config>
struct DecodeInParts : Config {
  static constexpr bool kParts = true;
};

/// Barriers of the consumers.
inline constexpr int kOfSums = 1, kOfPlaces = 2, kOfHeard = 3;

/// The place of a consumer warp among the others. Warps with the same row group have the same query rows: 8 of each
/// 8 kRowGroups.
template <class Config>
struct DecodeWarp {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int slice = warp % Config::kSlices;
  const int row_group = warp / Config::kSlices % Config::kRowGroups;
  const int turn = warp / Config::kSlices / Config::kRowGroups;

  /// The first row in the tile of this warp's block b.
  FALCHION_DEVICE int row0(int b) const { return 8 * (b * Config::kRowGroups + row_group); }
};

}  // namespace falchion::sm90
