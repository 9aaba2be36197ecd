// tests/sm90_decode_schedule_test.cpp: tests how tiles of keys are dealt to the CTAs of Hopper's decode kernel and who
// hears whom (src/sm90/attention_forward/decode/schedule.hpp). Each tile must have one CTA, what each CTA has of a
// segment must reach its last one once, and nobody may wait for a CTA that the device has not started before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "plan/text.hpp"
#include "policy/mask.hpp"
#include "sm90/attention_forward/decode/schedule.hpp"

namespace falchion::testing {
namespace {

using sm90::DecodeBand;
using sm90::DecodeHeard;
using sm90::DecodeParts;
using sm90::DecodeRange;
using sm90::DecodeSequence;
using sm90::DecodeShare;
using sm90::DecodeShares;

/// The tiles [begin, end) of the list that a segment has.
struct Segment {
  std::uint32_t begin, end;
};

/// Segments of these sizes, one behind another.
std::vector<Segment> list_of(const std::vector<int>& sizes) {
  std::vector<Segment> out;
  std::uint32_t at = 0;
  for (const int size : sizes) {
    out.push_back({at, at + static_cast<std::uint32_t>(size)});
    at = out.back().end;
  }
  return out;
}

/// Goes over what each group does in a segment: its part goes to the one that hears it, and what a group has heard goes
/// on with its own. Returns "" or the first thing that is wrong.
template <class Heard>
std::string check_segment(const DecodeShares& shares, const Segment& segment, std::uint32_t* most_heard) {
  const std::uint32_t first = shares.group_of(segment.begin), last = shares.group_of(segment.end - 1);
  std::vector<std::uint32_t> tiles(last + 1);  // that a group has, and has heard of
  std::vector<int> heard_by(last + 1);         // groups that hear it
  for (std::uint32_t g = first; g <= last; ++g) {
    const DecodeShare share = shares.of(g);
    tiles[g] = std::min(share.end, segment.end) - std::max(share.begin, segment.begin);
    if (tiles[g] == 0 || tiles[g] > segment.end - segment.begin) return text("group ", g, " has no part");
    std::uint32_t before = 0;
    const auto heard = Heard::by(g, first, last);
    *most_heard = std::max(*most_heard, heard.count);
    if (heard.count > 0 && g != last && share.begin < segment.begin)
      return text("group ", g, " hears for two segments");
    for (std::uint32_t i = 0; i < heard.count; ++i) {
      const std::uint32_t other = heard.group(i);
      if (other < first || other >= g) return text("group ", g, " waits for ", other);
      if (i > 0 && other <= before) return text("group ", g, " hears ", other, " after ", before);
      before = other;
      if (++heard_by[other] > 1) return text("group ", other, " is heard twice");
      tiles[g] += tiles[other];
    }
  }
  for (std::uint32_t g = first; g < last; ++g)
    if (heard_by[g] != 1) return text("nobody hears group ", g);
  return tiles[last] == segment.end - segment.begin ? "" : text(tiles[last], " tiles reached the last group");
}

/// Every tile has one group, groups have the same number of tiles but for one, and each segment is added up.
template <class Heard = DecodeHeard>
std::string check(const std::vector<int>& sizes, int groups, std::uint32_t* most_heard = nullptr) {
  const std::vector<Segment> segments = list_of(sizes);
  const std::uint32_t all = segments.empty() ? 0 : segments.back().end;
  const DecodeShares shares(all, Divisor(groups));
  std::uint32_t at = 0, unused = 0, shortest = all, longest = 0;
  for (int g = 0; g < groups; ++g) {
    const DecodeShare share = shares.of(static_cast<std::uint32_t>(g));
    if (share.empty()) {
      if (at != all) return text("group ", g, " has nothing, and ", all - at, " tiles are left");
      continue;
    }
    if (share.begin != at) return text("group ", g, " begins at ", share.begin, ", not at ", at);
    at = share.end;
    shortest = std::min(shortest, share.end - share.begin);
    longest = std::max(longest, share.end - share.begin);
    for (std::uint32_t tile = share.begin; tile < share.end; ++tile)
      if (shares.group_of(tile) != static_cast<std::uint32_t>(g)) return text("tile ", tile, " is not in group ", g);
  }
  if (at != all) return text(at, " of ", all, " tiles have a group");
  if (all > 0 && longest > shortest + 1) return text("a group has ", longest, " tiles, another one ", shortest);
  for (const Segment& segment : segments) {
    const std::string why = check_segment<Heard>(shares, segment, most_heard == nullptr ? &unused : most_heard);
    if (!why.empty()) return text("segment from tile ", segment.begin, ": ", why);
  }
  return "";
}

TEST(DecodeSchedule, OneSegmentOfAnySizeOnAnyNumberOfGroups) {
  for (int groups = 1; groups <= 150; ++groups)
    for (int tiles = 1; tiles <= 320; ++tiles) ASSERT_EQ(check({tiles}, groups), "") << groups << " " << tiles;
}

TEST(DecodeSchedule, TwoAndThreeSegments) {
  for (const int groups : {1, 2, 3, 5, 16, 33, 132})
    for (int a = 1; a <= 40; ++a)
      for (int b = 1; b <= 40; ++b) {
        ASSERT_EQ(check({a, b}, groups), "") << groups << " " << a << " " << b;
        ASSERT_EQ(check({a, 1, b}, groups), "") << groups << " " << a << " " << b;
      }
}

TEST(DecodeSchedule, RaggedSegments) {
  std::mt19937 random(7);
  for (int i = 0; i < 4000; ++i) {
    const int groups = std::uniform_int_distribution(1, 140)(random);
    const int most = std::vector{1, 3, 30, 700}[random() % 4];
    std::vector<int> sizes(1 + random() % 70);
    for (int& size : sizes) size = std::uniform_int_distribution(1, most)(random);
    ASSERT_EQ(check(sizes, groups), "") << groups << " groups, " << sizes.size() << " segments of up to " << most;
  }
}

TEST(DecodeSchedule, NoTiles) { EXPECT_EQ(check({}, 16), ""); }

/// 131 groups before the last one: 10 totals and 11 more.
TEST(DecodeSchedule, NobodyHearsMany) {
  std::uint32_t most = 0;
  EXPECT_EQ(check({5000}, 132, &most), "");
  EXPECT_EQ(most, 21U);
  for (int groups = 1; groups <= 250; ++groups) {
    most = 0;
    EXPECT_EQ(check({5000}, groups, &most), "");
    EXPECT_LE(most, groups <= 25 ? static_cast<std::uint32_t>(groups - 1) : DecodeHeard::kMostHeard + 8) << groups;
  }
}

/// These show that the checks can fail.
struct NobodyHearsTheFirst : DecodeHeard {
  static NobodyHearsTheFirst by(std::uint32_t group, std::uint32_t first, std::uint32_t last) {
    return {DecodeHeard::by(group, std::min(first + 1, group), std::max(last, first + 1))};
  }
};
struct TheFirstHears : DecodeHeard {
  static TheFirstHears by(std::uint32_t group, std::uint32_t first, std::uint32_t last) {
    if (group == first && first < last) return {{.count = 1, .neighbours = last}};
    return {};
  }
};
TEST(DecodeSchedule, WrongSchedulesAreFound) {
  EXPECT_EQ(check<NobodyHearsTheFirst>({100}, 8), "segment from tile 0: nobody hears group 0");
  EXPECT_EQ(check<TheFirstHears>({100}, 8), "segment from tile 0: group 0 waits for 7");
}

/// The band in 32 bits and the tiles of a sequence, against the definition in policy/mask.hpp.
std::string check_band(std::int64_t left, std::int64_t right, bool bottom_right, std::int64_t diagonal, int q_length,
                       int k_length) {
  constexpr int kGroup = 3, kRows = 8, kKeys = 16;
  const DecodeBand band = DecodeBand::make(left, right, bottom_right, diagonal);
  const DecodeSequence x = DecodeSequence::of(band, q_length, {0, k_length}, kGroup, kRows, kKeys);
  const BandMask mask = BandMask::make(k_length, bottom_right ? k_length - q_length : diagonal, left, right);
  std::vector<bool> seen(static_cast<std::size_t>(k_length)), all(seen.size(), true);
  for (int q = 0; q < q_length; ++q)
    for (int key = 0; key < k_length + 3; ++key) {
      const bool sees = mask.keep(q, key);
      if (x.sees(q, key) != sees) return text("query ", q, ", key ", key, ": ", !sees);
      if (key >= k_length) continue;
      if (sees) seen[static_cast<std::size_t>(key)] = true;
      if (!sees) all[static_cast<std::size_t>(key)] = false;
    }
  const sm90::DecodeKeys all_see = x.all_see(0, q_length);
  const int end = static_cast<int>(x.tiles) * kKeys + x.first * kKeys;
  for (int key = 0; key < k_length; ++key) {
    const auto at = static_cast<std::size_t>(key);
    if (seen[at] && (key < x.first * kKeys || key >= end)) return text("key ", key, " is in no tile");
    if ((all_see.begin <= key && key < all_see.end) != all[at]) return text("key ", key, ": all see it, or not");
  }
  const bool any = std::find(seen.begin(), seen.end(), true) != seen.end();
  const auto has_seen = [&](std::uint32_t tile) {
    const auto from = seen.begin() + std::min<int>(static_cast<int>(tile) * kKeys, k_length);
    return std::find(from, seen.begin() + std::min<int>(static_cast<int>(tile + 1) * kKeys, k_length), true) !=
           seen.begin() + std::min<int>(static_cast<int>(tile + 1) * kKeys, k_length);
  };
  const auto first = static_cast<std::uint32_t>(x.first);
  if (!any) return x.tiles == 1 && x.first == 0 ? "" : text(x.tiles, " tiles, but no key is seen");
  if (!has_seen(first) || !has_seen(first + x.tiles - 1)) return "a tile at an end has no seen key";
  return x.row_tiles == (q_length * kGroup + kRows - 1) / kRows ? "" : text(x.row_tiles, " row tiles");
}

TEST(DecodeSchedule, BandsOfAnySize) {
  const std::int64_t sides[] = {-1, 0, 1, 7, 40, std::int64_t{1} << 29, std::int64_t{1} << 40, INT64_MAX};
  const std::int64_t diagonals[] = {0,
                                    5,
                                    -5,
                                    100,
                                    -100,
                                    std::int64_t{1} << 30,
                                    -(std::int64_t{1} << 30),
                                    std::int64_t{1} << 41,
                                    -(std::int64_t{1} << 41)};
  for (const std::int64_t left : sides)
    for (const std::int64_t right : sides)
      for (const auto& [q, k] : std::vector<std::pair<int, int>>{{1, 1}, {1, 70}, {5, 70}, {70, 5}, {3, 0}, {20, 33}}) {
        ASSERT_EQ(check_band(left, right, true, 0, q, k), "") << left << " " << right << " " << q << " " << k;
        for (const std::int64_t at : diagonals)
          ASSERT_EQ(check_band(left, right, false, at, q, k), "")
              << left << " " << right << " at " << at << " " << q << " " << k;
      }
}

/// Where 32 bits would overflow if anything did.
TEST(DecodeSchedule, BandsOfTheLongestSequences) {
  constexpr int kMost = (1 << 28) - 1;
  for (const bool bottom_right : {false, true}) {
    const DecodeBand band = DecodeBand::make(-1, -1, bottom_right, 0);
    for (const auto& [q, k] : std::vector<std::pair<int, int>>{{1, kMost}, {kMost, 1}, {kMost, kMost}}) {
      const DecodeSequence x = DecodeSequence::of(band, q, {0, k}, 1, 8, 64);
      EXPECT_EQ(x.first, 0);
      EXPECT_EQ(x.tiles, static_cast<std::uint32_t>((k + 63) / 64));
      EXPECT_TRUE(x.sees(q - 1, k - 1) && x.sees(0, k - 1) && x.sees(0, 0) && !x.sees(0, k));
      EXPECT_EQ(x.all_see(0, q).end, k);
    }
  }
}

/// Starts that fall or leave the axis, and lengths out of range, are clamped as the contract says.
TEST(DecodeSchedule, RangesOfAnyNumbers) {
  constexpr std::int32_t kLeast = INT32_MIN, kMost = INT32_MAX;
  for (const int all : {0, 1, 100, (1 << 28) - 1}) {
    const std::int32_t numbers[] = {kLeast, -1, 0, 1, 63, all / 2, all, all + 1, kMost};
    for (const std::int32_t start : numbers)
      for (const std::int32_t end : numbers)
        for (const std::int32_t used : numbers)
          for (const std::int32_t first : numbers) {
            const std::int32_t cu[] = {start, end};
            const std::int64_t begin = std::clamp<std::int64_t>(start, 0, all);
            const std::int64_t most = std::clamp<std::int64_t>(end, begin, all) - begin;
            const std::int64_t length = std::clamp<std::int64_t>(used, 0, most);
            const std::int64_t left_out = std::clamp<std::int64_t>(first, 0, length);
            const DecodeRange x = DecodeRange::of(0, cu, all, &used).from(0, &first);
            ASSERT_EQ(x.begin, begin + left_out) << start << " " << end << " " << used << " " << first << " of " << all;
            ASSERT_EQ(x.length, length - left_out)
                << start << " " << end << " " << used << " " << first << " of " << all;
          }
    const DecodeRange whole = DecodeRange::of(7, nullptr, all, nullptr).from(7, nullptr);
    EXPECT_TRUE(whole.begin == 0 && whole.length == all);
  }
}

TEST(DecodeSchedule, ASequenceWithoutRowsHasATile) {
  const DecodeSequence x = DecodeSequence::of(DecodeBand::make(-1, -1, true, 0), 0, {0, 1000}, 4, 8, 64);
  EXPECT_EQ(x.tiles, 1U);
  EXPECT_EQ(x.row_tiles, 1);
}

/// The parts of a segment lie side by side, begin at multiples of split_keys of the sequence, and have their middle
/// inside, so that one share has it.
TEST(DecodeParts, BeginAtMultiples) {
  for (int first = 0; first < 9; ++first) {
    for (int tiles = 1; tiles < 20; ++tiles) {
      for (int each = 1; each < 7; ++each) {
        SCOPED_TRACE(text(tiles, " tiles from ", first, ", parts of ", each));
        const DecodeParts parts{first, tiles, each};
        int at = 0;
        for (int part = parts.begin_part(); part <= parts.last_part(); ++part) {
          EXPECT_EQ(parts.begin(part), at);
          EXPECT_LT(at, parts.end(part));
          if (at > 0) { EXPECT_EQ((first + at) % each, 0); }
          EXPECT_LE(at, parts.middle(part));
          EXPECT_LT(parts.middle(part), parts.end(part));
          for (; at < parts.end(part); ++at) {
            EXPECT_EQ((first + at) / each, part);
            EXPECT_EQ(parts.of_tile(at), part);
          }
        }
        EXPECT_EQ(at, tiles);
      }
    }
  }
}

}  // namespace
}  // namespace falchion::testing
