// src/sm90/attention_forward/decode/schedule.hpp: which CTA has which tiles of keys, which parts of a row it tells to
// others, and whom it hears. tests/sm90_decode_schedule_test.cpp goes through all of it on the host.
//
// A segment is the keys that one tile of query rows sees of the K/V heads that stand side by side. `width` CTAs are a
// group and have a head each, so that all heads of a token are read at about the same time: they lie side by side in
// memory. The tiles of all segments stand in one list, and each group has an equal piece of it, without a gap. So a
// segment may lie in several groups. Its last group hears the earlier ones, all of lower index, which the device has
// started before.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/divisor.hpp"
#include "base/host_device.hpp"

namespace falchion::sm90 {

/// The band in 32 bits, which lengths up to kDecodeMostLength allow. 64 bits would take longer where each step counts:
/// nothing is loaded before the tiles have been dealt.
struct DecodeBand {
  static constexpr std::int64_t kFar = std::int64_t{1} << 29;

  // Query q sees the keys from q + low to q + high, and where the last query stands at the last key, k_length -
  // q_length further.
  int low = 0, high = 0;
  bool bottom_right = false;

  static DecodeBand make(std::int64_t left, std::int64_t right, bool bottom_right, std::int64_t diagonal) {
    constexpr std::int64_t kOpen = std::int64_t{1} << 60;
    const std::int64_t at = bottom_right ? 0 : std::clamp(diagonal, -kOpen, kOpen);
    const std::int64_t low = left < 0 ? -kFar : at - std::min(left, kOpen);
    const std::int64_t high = right < 0 ? kFar : at + std::min(right, kOpen);
    return {static_cast<int>(std::clamp(low, -kFar, kFar)), static_cast<int>(std::clamp(high, -kFar, kFar)),
            bottom_right};
  }
};

/// The keys [begin, end).
struct DecodeKeys {
  int begin, end;
  FALCHION_HD bool empty() const { return end <= begin; }
};

/// Some rows of one axis, that of sequences or of all packed rows.
struct DecodeRange {
  int begin, length;

  /// What Rows (gpu/blocks/rows.cuh) says of sequence b, in 32 bits. all: the length of the axis.
  static FALCHION_HD DecodeRange of(int b, const std::int32_t* cu, int all, const std::int32_t* used) {
    DecodeRange x{0, all};
    if (cu != nullptr) {
      x.begin = clamped(cu[b], 0, all);
      x.length = clamped(cu[b + 1], x.begin, all) - x.begin;
    }
    if (used != nullptr) x.length = clamped(used[b], 0, x.length);
    return x;
  }
  /// Without rows at the beginning that do not count.
  FALCHION_HD DecodeRange from(int b, const std::int32_t* first) const {
    if (first == nullptr) return *this;
    const int left_out = clamped(first[b], 0, length);
    return {begin + left_out, length - left_out};
  }

 private:
  static FALCHION_HD int clamped(int x, int least, int most) { return x < least ? least : x > most ? most : x; }
};

/// What the list of tiles has of a sequence. Each of its segments has the same tiles of keys: those that any of its
/// rows sees. A sequence without such a tile has one in which no row sees a key, so that its O = 0 and LSE = -inf are
/// stored as others are.
struct DecodeSequence {
  int k_begin;  // the row of its first key
  int q_length, k_length;
  int low, high;        // query q sees the keys from q + low to q + high that exist
  int first;            // tile of keys
  std::uint32_t tiles;  // of keys
  int row_tiles;
  int used = 0;  // what used_k says of it, in range or not

  /// rows: query rows of a tile, keys: of a tile.
  static FALCHION_HD DecodeSequence of(const DecodeBand& band, int q_length, const DecodeRange& k, int group, int rows,
                                       int keys) {
    const int shift = band.bottom_right ? k.length - q_length : 0;
    DecodeSequence x{k.begin, q_length, k.length, band.low + shift, band.high + shift, 0, 1, 1};
    if (q_length == 0) return x;
    x.row_tiles = (q_length * group + rows - 1) / rows;
    const DecodeKeys seen = x.seen(0, q_length);
    if (seen.empty()) return x;
    x.first = seen.begin / keys;
    x.tiles = static_cast<std::uint32_t>((seen.end + keys - 1) / keys - x.first);
    return x;
  }
  /// The keys that some query in [q0, q1) sees.
  FALCHION_HD DecodeKeys seen(int q0, int q1) const { return inside(q0 + low, q1 + high); }
  /// The keys that every query in [q0, q1) sees.
  FALCHION_HD DecodeKeys all_see(int q0, int q1) const { return inside(q1 - 1 + low, q0 + high + 1); }
  FALCHION_HD bool sees(int q, int key) const { return q + low <= key && key <= q + high && key < k_length; }

 private:
  FALCHION_HD DecodeKeys inside(int begin, int end) const {
    return {begin > 0 ? begin : 0, end < k_length ? end : k_length};
  }
};

/// The parts of a segment where split_keys is given. They begin at multiples of `each` tiles, counted from the
/// sequence's first key on, and a part's number says which of them. No CTA has a piece of a part: a group has the parts
/// whose middle tile is in its share. So a part's bits, and the sum of all of them, follow from the sequence alone.
struct DecodeParts {
  int first, tiles;  // of the segment
  int each;

  FALCHION_HD int of_tile(int tile) const { return (first + tile) / each; }
  FALCHION_HD int begin_part() const { return first / each; }
  FALCHION_HD int last_part() const { return of_tile(tiles - 1); }
  /// A part's tiles, counted from the segment's first one on.
  FALCHION_HD int begin(int part) const { return part * each > first ? part * each - first : 0; }
  FALCHION_HD int end(int part) const { return (part + 1) * each - first < tiles ? (part + 1) * each - first : tiles; }
  FALCHION_HD int middle(int part) const { return (begin(part) + end(part)) / 2; }
};

/// The tiles [begin, end) of the list.
struct DecodeShare {
  std::uint32_t begin = 0, end = 0;
  FALCHION_HD bool empty() const { return end <= begin; }
};

/// How `tiles` tiles are dealt to the groups: the first groups have one more. Where there are fewer tiles than groups,
/// the first groups have one each and the others none.
class DecodeShares {
 public:
  /// by_groups: how many groups there are.
  FALCHION_HD DecodeShares(std::uint32_t tiles, const Divisor& by_groups) {
    const std::uint32_t groups = by_groups.value();
    each_ = tiles < groups ? 1 : by_groups.divide(tiles);
    more_ = tiles < groups ? 0 : tiles - each_ * groups;
    used_ = tiles < groups ? tiles : groups;
  }
  FALCHION_HD DecodeShare of(std::uint32_t group) const {
    if (group >= used_) return {};
    const std::uint32_t begin = group * each_ + (group < more_ ? group : more_);
    return {begin, begin + each_ + (group < more_ ? 1 : 0)};
  }
  /// The group that has a tile.
  FALCHION_HD std::uint32_t group_of(std::uint32_t tile) const {
    const std::uint32_t in_longer = more_ * (each_ + 1);  // tiles of the groups that have one more
    if (tile < in_longer) return tile / (each_ + 1);
    return more_ + (tile - in_longer) / each_;
  }

 private:
  std::uint32_t each_, more_, used_;
};

/// Whom a group hears of the groups of a segment, from the first keys to the last: `totals` groups that stand kTotal
/// apart, and then neighbours.
struct DecodeHeard {
  static constexpr std::uint32_t kMostHeard = 24, kTotal = 12;
  std::uint32_t count = 0;
  std::uint32_t totals = 0, first_total = 0;
  std::uint32_t neighbours = 0;  // the first of them, less `totals`

  /// The segment's groups are [first, last]. The last one hears all others, or, where they are many, totals: of each
  /// kTotal groups the last hears the others and tells what they have together. So with 131 groups before it (one K/V
  /// head on an H100) the last one hears 21 and not 131, which would take it 5 us.
  static FALCHION_HD DecodeHeard by(std::uint32_t group, std::uint32_t first, std::uint32_t last) {
    const std::uint32_t before = last - first, place = group - first;
    const std::uint32_t totals = before <= kMostHeard ? 0 : before / kTotal;
    if (group == last)
      return {before - totals * (kTotal - 1), totals, first + kTotal - 1, first + totals * (kTotal - 1)};
    if (totals == 0 || place % kTotal != kTotal - 1) return {};
    return {kTotal - 1, 0, 0, group - (kTotal - 1)};
  }
  /// The one that it hears as number i.
  FALCHION_HD std::uint32_t group(std::uint32_t i) const {
    return i < totals ? first_total + i * kTotal : neighbours + i;
  }
};

}  // namespace falchion::sm90
