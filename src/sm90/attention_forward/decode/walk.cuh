// src/sm90/attention_forward/decode/walk.cuh: finds the tiles of a CTA from the lengths of the sequences, which the
// device knows alone, and goes over them. No key is loaded before that, so each step of it counts.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "sm90/attention_forward/decode/config.cuh"
#include "sm90/attention_forward/decode/schedule.hpp"

namespace falchion::sm90 {

using namespace gpu;

/// What a launch says besides the problem.
struct DecodeGrid {
  DecodeBand band;
  Divisor by_width;      // CTAs of a group, each with a K/V head of its own
  Divisor by_groups;     // groups
  Divisor by_blocks;     // of `by_width` K/V heads each
  int s_q, s_k;          // the lengths of the axes of q and k
  std::uint64_t number;  // of the launch
  float4* places;
  std::uint64_t* numbers;
};

/// Goes over the segments of a CTA, from the last to the first: what other CTAs wait for comes first, and what waits
/// for others comes last. With split_keys (Config::kParts) it goes over the parts of the segments.
template <class Config>
class DecodeWalk {
 public:
  FALCHION_DEVICE DecodeWalk(const AttentionArgs& a, const DecodeGrid& grid)
      : a(a), grid(grid), group(static_cast<int>(grid.by_width.divide(blockIdx.x))) {
    column = static_cast<int>(blockIdx.x) - group * static_cast<int>(grid.by_width.value());
  }
  FALCHION_DEVICE bool reads_lengths() const {
    return a.used_k != nullptr || a.used_q != nullptr || a.cu_q != nullptr || a.first_k != nullptr ||
           (Config::kPages && a.pages.starts != nullptr);
  }
  /// Reads the lengths and goes to the last segment. All threads of the CTA call it together.
  FALCHION_DEVICE void find(typename Config::Shared& shared) {
    if (a.b <= 32) {
      find_in_warp();
    } else {
      find_in_cta(shared);
    }
    if (share.empty()) return;
    const std::uint32_t before = share.end - 1 - begin;  // tiles of the sequence before the last one
    segment = segments(sequence) == 1 ? 0 : before / sequence.tiles;
    begin += segment * sequence.tiles;
    find_rows();
    if constexpr (Config::kParts) find_part();
  }

  FALCHION_DEVICE bool is_first() const {
    if constexpr (Config::kParts) {
      if (part > parts().begin_part()) return !has(part - 1);
      if (begin <= share.begin) return true;
      DecodeWalk before = *this;
      before.go_back();
      return !before.has(before.part);
    }
    return begin <= share.begin;
  }
  /// Goes to the segment or part before this one, which is not the first.
  FALCHION_DEVICE void go_back() {
    if (Config::kParts && part > parts().begin_part()) {
      --part;
      return;
    }
    if (segment == 0) {
      sequence = sequence_of(--b);
      segment = segments(sequence);
    }
    --segment;
    begin -= sequence.tiles;
    find_rows();
    if constexpr (Config::kParts) part = parts().last_part();
  }

  /// This CTA's tiles of keys, counted from the sequence's first key on.
  FALCHION_DEVICE int begin_tile() const {
    if constexpr (Config::kParts) return sequence.first + parts().begin(part);
    return sequence.first + static_cast<int>(begin < share.begin ? share.begin - begin : 0);
  }
  FALCHION_DEVICE int end_tile() const {
    if constexpr (Config::kParts) return sequence.first + parts().end(part);
    return sequence.first + static_cast<int>(min(sequence.tiles, share.end - begin));
  }
  /// Other CTAs have later tiles of the segment; or earlier ones.
  FALCHION_DEVICE bool tells() const { return begin + sequence.tiles > share.end; }
  FALCHION_DEVICE bool shares_with_earlier() const { return begin < share.begin; }

  // kParts:
  FALCHION_DEVICE DecodeParts parts() const {
    return {sequence.first, static_cast<int>(sequence.tiles), static_cast<int>(a.split_keys) / Config::kKeys};
  }
  /// Whether a part of the segment is this CTA's, if it is not past its share, or not before it.
  FALCHION_DEVICE bool has(int x) const { return middle(x) >= share.begin; }
  FALCHION_DEVICE bool is_later(int x) const { return middle(x) >= share.end; }
  /// Another CTA has the segment's last part, and adds the parts up.
  FALCHION_DEVICE bool tells_parts() const { return is_later(parts().last_part()); }
  /// No earlier part of the segment is this CTA's.
  FALCHION_DEVICE bool is_first_of_segment() const { return part == parts().begin_part() || !has(part - 1); }

  FALCHION_DEVICE DecodeHeard heard() const {
    if (!shares_with_earlier()) return {};
    const DecodeShares shares(total, grid.by_groups);
    const auto own = static_cast<std::uint32_t>(group);
    return DecodeHeard::by(own, shares.group_of(begin), tells() ? shares.group_of(begin + sequence.tiles - 1) : own);
  }
  /// The CTA of a group that has the same head.
  FALCHION_DEVICE int cta(std::uint32_t of_group) const {
    return static_cast<int>(of_group * grid.by_width.value()) + column;
  }

  const AttentionArgs& a;
  const DecodeGrid& grid;
  const int group;
  int column;
  DecodeShare share;
  int b = 0;
  DecodeSequence sequence;
  int row0, rows;  // the first query row of the segment, and how many it has
  int head_k;
  int part = 0;  // kParts: its number

 private:
  /// Goes to this CTA's last part, from the segment in which its share ends.
  FALCHION_DEVICE void find_part() {
    part = parts().of_tile(static_cast<int>(share.end - 1 - begin));
    if (is_later(part)) {
      const bool none = begin == 0 && part == parts().begin_part();
      if (!none) go_back();
      if (none || !has(part)) share = {};
    } else if (!has(part)) {
      share = {};
    }
  }
  FALCHION_DEVICE std::uint32_t middle(int x) const { return begin + static_cast<std::uint32_t>(parts().middle(x)); }
  FALCHION_DEVICE void find_rows() {
    const std::uint32_t row_tile = grid.by_blocks.divide(segment);
    row0 = static_cast<int>(row_tile) * Config::kRows;
    rows = min(sequence.q_length * a.group - row0, Config::kRows);
    head_k = static_cast<int>((segment - row_tile * grid.by_blocks.value()) * grid.by_width.value()) + column;
  }
  FALCHION_DEVICE DecodeSequence sequence_of(int i) const {
    const DecodeRange q = DecodeRange::of(i, a.cu_q, grid.s_q, a.used_q);
    const int most = Config::kPages ? static_cast<int>(room_of_cache(a, i)) : grid.s_k;
    const DecodeRange k = DecodeRange::of(i, a.cu_k, most, a.used_k).from(i, a.first_k);
    DecodeSequence x = DecodeSequence::of(grid.band, q.length, k, a.group, Config::kRows, Config::kKeys);
    if (a.append || a.rotation.dim > 0) x.used = a.used_k[i];
    return x;
  }
  FALCHION_DEVICE std::uint32_t segments(const DecodeSequence& x) const {
    return static_cast<std::uint32_t>(x.row_tiles) * grid.by_blocks.value();
  }
  FALCHION_DEVICE std::uint32_t tiles_of(const DecodeSequence& x) const { return x.tiles * segments(x); }
  /// The sum over the lanes up to this one.
  static FALCHION_DEVICE std::uint32_t sum_of_lanes(std::uint32_t x) {
    CUTE_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const std::uint32_t other = __shfl_up_sync(~0u, x, step);
      x += static_cast<int>(threadIdx.x) % 32 >= step ? other : 0;
    }
    return x;
  }

  /// Up to 32 sequences: each warp finds the sequence of the last tile by itself, and leaves its first tile in `begin`.
  FALCHION_DEVICE void find_in_warp() {
    const int lane = static_cast<int>(threadIdx.x) % 32, count = static_cast<int>(a.b);
    sequence = sequence_of(min(lane, count - 1));
    if (count == 1) {
      total = tiles_of(sequence);
      share = DecodeShares(total, grid.by_groups).of(group);
      return;
    }
    const std::uint32_t own = lane < count ? tiles_of(sequence) : 0, sum = sum_of_lanes(own);
    total = __shfl_sync(~0u, sum, 31);
    share = DecodeShares(total, grid.by_groups).of(group);
    b = __ffs(static_cast<int>(__ballot_sync(~0u, sum >= share.end))) - 1;  // the first whose tiles end there or later
    begin = __shfl_sync(~0u, sum - own, b);
    const auto from_lane = [&](auto& x) { x = __shfl_sync(~0u, x, b); };
    from_lane(sequence.k_begin);
    from_lane(sequence.q_length);
    from_lane(sequence.k_length);
    from_lane(sequence.low);
    from_lane(sequence.high);
    from_lane(sequence.first);
    from_lane(sequence.tiles);
    from_lane(sequence.row_tiles);
    from_lane(sequence.used);
  }
  /// Any number: the threads of the CTA have some sequences each.
  FALCHION_DEVICE void find_in_cta(typename Config::Shared& shared) {
    const int thread = static_cast<int>(threadIdx.x), count = static_cast<int>(a.b);
    const int each = (count + Config::kThreads - 1) / Config::kThreads;
    const int from = min(thread * each, count), to = min(from + each, count);
    std::uint32_t own = 0;
    for (int i = from; i < to; ++i) own += tiles_of(sequence_of(i));
    std::uint32_t sum = sum_of_lanes(own);
    if (thread % 32 == 31) shared.of_warp[thread / 32] = sum;
    __syncthreads();
    CUTE_UNROLL
    for (int warp = 0; warp < Config::kThreads / 32; ++warp) {
      sum += warp < thread / 32 ? shared.of_warp[warp] : 0;
      total += shared.of_warp[warp];
    }
    share = DecodeShares(total, grid.by_groups).of(group);
    std::uint32_t first = sum - own;
    if (first < share.end && share.end <= sum) {
      int i = from;
      for (std::uint32_t tiles = tiles_of(sequence_of(i)); first + tiles < share.end;
           tiles = tiles_of(sequence_of(i))) {
        first += tiles;
        ++i;
      }
      shared.sequence = i;
      shared.first = first;
    }
    __syncthreads();
    if (share.empty()) return;
    b = shared.sequence;
    begin = shared.first;
    sequence = sequence_of(b);
  }

  std::uint32_t segment = 0;  // of the sequence: row tile * blocks + block of heads
  std::uint32_t begin = 0;    // the segment's first tile in the list
  std::uint32_t total = 0;    // tiles of the list
};

}  // namespace falchion::sm90
