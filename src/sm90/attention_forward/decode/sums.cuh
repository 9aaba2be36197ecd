// src/sm90/attention_forward/decode/sums.cuh: adds up what the consumer warps of a CTA have of a segment.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tma.cuh"
#include "sm90/attention_forward/decode/products.cuh"

namespace falchion::sm90 {

/// Four columns of a row over some of its keys. o and l are relative to 2^(m c).
struct DecodePart {
  float4 o;
  float m, l;

  static FALCHION_DEVICE DecodePart of_no_keys() { return {{0, 0, 0, 0}, -FALCHION_INF, 0}; }
  /// Adds other keys.
  FALCHION_DEVICE void add(const float4& other_o, float other_m, float other_l, float c) {
    const float top = fmaxf(m, other_m), mine = power_below(m, top, c), others = power_below(other_m, top, c);
    o = {o.x * mine + other_o.x * others, o.y * mine + other_o.y * others, o.z * mine + other_o.z * others,
         o.w * mine + other_o.w * others};
    l = l * mine + other_l * others;
    m = top;
  }
};

/// Which row and columns a consumer thread has when sums are added up: one of `lines` rows at a time, as many as there
/// are or as the threads can have. If rows are few, `shares` threads have the same one: the first owns it.
template <class Config>
struct DecodeThread {
  int log_lines;
  int lines, shares;
  int line, share;
  int four = static_cast<int>(threadIdx.x) % Config::kFours;  // columns 4 four and the three after it

  explicit FALCHION_DEVICE DecodeThread(int rows) {
    log_lines = 0;
    while ((1 << log_lines) < min(rows, Config::kLines)) ++log_lines;
    lines = 1 << log_lines;
    shares = Config::kLines >> log_lines;
    const int place = static_cast<int>(threadIdx.x) / Config::kFours;
    line = place & (lines - 1);
    share = place >> log_lines;
  }
};

/// Leaves what a warp has in shared memory. free: no warp reads there any more.
template <class Config>
FALCHION_DEVICE void leave_sums(DecodeRows<Config>& x, int rows, typename Config::Shared& shared, bool free) {
  const int lane = static_cast<int>(threadIdx.x) % 32, pair = lane % 4 * 2;
  x.finish();
  if (!free) sync_threads<Config::kConsumers>(kOfSums);
  CUTE_UNROLL
  for (int b = 0; b < Config::kBlocks; ++b) {
    if (x.place.row0(b) + pair >= rows) continue;
    auto& sums = shared.sums[x.place.warp];
    const int row = 8 * b + pair;
    if (lane < 4) {
      CUTE_UNROLL
      for (int j = 0; j < 2; ++j) {
        shared.m[x.place.warp][row + j] = x.m[b][j];
        shared.l[x.place.warp][row + j] = x.l[b][j];
      }
    }
    CUTE_UNROLL
    for (int i = 0; i < Config::kD / 16; ++i) {
      CUTE_UNROLL
      for (int e = 0; e < 4; ++e) sums[row + e % 2][i * 16 + CachedTile<Config>::column_of_o(lane, e)] = x.o[i][b][e];
    }
  }
  sync_threads<Config::kConsumers>(kOfSums);
}

/// What all warps have of a row of the tile, always added in the same order. first_turn: the turn of the warps that had
/// the first tile. With split_keys they come first, so that a sum does not depend on what the CTA has read before.
template <class Config>
FALCHION_DEVICE DecodePart add_warps(const typename Config::Shared& shared, int row, int four, float c,
                                     int first_turn) {
  constexpr int kWarps = Config::kWarps / Config::kRowGroups;  // that have the row
  const int group = row / 8 % Config::kRowGroups, own = row / 8 / Config::kRowGroups * 8 + row % 8;
  const auto warp = [&](int i) {
    const int turn = Config::kParts ? (i / Config::kSlices + first_turn) & (Config::kTurns - 1) : i / Config::kSlices;
    return turn * (Config::kSlices * Config::kRowGroups) + group * Config::kSlices + i % Config::kSlices;
  };
  DecodePart part = DecodePart::of_no_keys();
  CUTE_UNROLL
  for (int i = 0; i < kWarps; ++i) part.m = fmaxf(part.m, shared.m[warp(i)][own]);
  CUTE_UNROLL
  for (int i = 0; i < kWarps; ++i) {
    const float weight = power_below(shared.m[warp(i)][own], part.m, c);
    const auto& o = reinterpret_cast<const float4&>(shared.sums[warp(i)][own][4 * four]);
    part.o = {part.o.x + weight * o.x, part.o.y + weight * o.y, part.o.z + weight * o.z, part.o.w + weight * o.w};
    part.l += weight * shared.l[warp(i)][own];
  }
  return part;
}

}  // namespace falchion::sm90
