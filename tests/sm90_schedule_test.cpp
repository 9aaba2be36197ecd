// tests/sm90_schedule_test.cpp: tests the order in which Hopper's CTAs work on the tiles
// (src/sm90/attention_forward/schedule.hpp). Each tile must have one place, the tiles of a section must stand together
// with the longest first, and under a causal band no CTA may end much later than the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "plan/text.hpp"

#include "sm90/attention_forward/schedule.hpp"

namespace falchion::testing {
namespace {

using sm90::Schedule;

struct Launch {
  int columns, tiles, section;
  int most = 2 * section;  // columns of the last section
  int items() const { return columns * tiles; }
  Schedule::Width width() const { return {section, most}; }
  /// The number of the last section, the first that may have all the columns that are left.
  int last_section() const {
    int n = 0;
    while (columns - n * section > most) ++n;
    return n;
  }
};
std::string name(const Launch& x) {
  return text(x.columns, " columns of ", x.tiles, " tiles, ", x.section, " columns a section, ", x.most,
              " in the last");
}

/// Asks for the item at every place, and returns "" or the first thing that is wrong.
template <class S>
std::string check(const Launch& launch) {
  const S schedule{S::make(launch.items(), launch.tiles, launch.width())};
  std::vector<int> times(static_cast<std::size_t>(launch.items()));
  int section_before = -1, tile_before = 0;
  for (int place = 0; place < launch.items(); ++place) {
    const int x = schedule.at(place);
    if (x < 0 || x >= launch.items()) return text("place ", place, ": there is no item ", x);
    ++times[static_cast<std::size_t>(x)];
    if (launch.section == 0) {
      if (x != place) return text("place ", place, ": item ", x, " without sections");
      continue;
    }
    // Columns that are neighbours make a section, and each section is worked off before the next one begins.
    const int section = std::min(x / launch.tiles / launch.section, launch.last_section()), tile = x % launch.tiles;
    if (section == section_before && tile < tile_before)
      return text("place ", place, ": tile ", tile, " after tile ", tile_before, " of the same section");
    if (section < section_before) return text("place ", place, ": section ", section, " after ", section_before);
    section_before = section;
    tile_before = tile;
  }
  for (std::size_t x = 0; x < times.size(); ++x) {
    if (times[x] != 1) return text("item ", x, " comes ", times[x], " times");
  }
  return "";
}

TEST(Sm90Schedule, EachItemOnceAndTheFirstTilesOfASectionFirst) {
  for (int columns = 0; columns <= 12; ++columns) {
    for (int tiles = 1; tiles <= 9; ++tiles) {
      for (int section = 0; section <= 15; ++section) {
        for (const int most : {section, section + 1, 2 * section, 3 * section}) {
          const Launch launch{columns, tiles, section, most};
          ASSERT_EQ(check<Schedule>(launch), "") << name(launch);
        }
      }
    }
  }
  for (const int columns : {15, 16, 33, 64, 128, 512}) {
    for (const int tiles : {1, 2, 3, 11, 16, 43, 64, 127}) {
      for (const int section : {1, 2, 4, 7, 16, 64, 511, 1000}) {
        for (const int most : {section, section + 1, 2 * section, 3 * section}) {
          const Launch launch{columns, tiles, section, most};
          ASSERT_EQ(check<Schedule>(launch), "") << name(launch);
        }
      }
    }
  }
}

/// Shows the order on small examples: columns of two tiles in sections of two columns, where the last section has three
/// or four of them, or all if there are fewer.
TEST(Sm90Schedule, TheLastSectionIsWider) {
  const auto order = [](int columns) {
    const Schedule schedule = Schedule::make(2 * columns, 2, {2, 4});
    std::string all;
    for (int place = 0; place < 2 * columns; ++place) all += text(place > 0 ? " " : "", schedule.at(place));
    return all;
  };
  EXPECT_EQ(order(1), "0 1");
  EXPECT_EQ(order(3), "0 2 4 1 3 5");
  EXPECT_EQ(order(4), "0 2 4 6 1 3 5 7");
  EXPECT_EQ(order(5), "0 2 1 3 4 6 8 5 7 9");
  EXPECT_EQ(order(6), "0 2 1 3 4 6 8 10 5 7 9 11");
}

/// The plan says how many heads fit into the L2, which may be far more than there are, and more than an int can hold.
TEST(Sm90Schedule, ASectionHasAtMostAllColumns) {
  constexpr std::int64_t kHuge = (std::int64_t{1} << 32) + 1;
  EXPECT_EQ(Schedule::make(12, 4, {2, 4}).section, 2);
  EXPECT_EQ(Schedule::make(12, 4, {3, 6}).section, 3);
  EXPECT_EQ(Schedule::make(12, 4, {4, 8}).section, 3);
  EXPECT_EQ(Schedule::make(12, 4, {kHuge, 2 * kHuge}).section, 3);
  EXPECT_EQ(Schedule::make(12, 4, {}).section, 0);
}

/// The largest grid that the plan allows has INT32_MAX items. No product of the computation may pass that.
TEST(Sm90Schedule, TheLastPlacesOfTheLargestGrid) {
  constexpr int kColumns = 65536, kTiles = 32767;
  for (const int section : {1, 3, 1000, 65535, 65536}) {
    const Schedule schedule = Schedule::make(kColumns * kTiles, kTiles, {section, 2 * section});
    EXPECT_EQ(schedule.at(0), 0) << section;
    EXPECT_EQ(schedule.at(kColumns * kTiles - 1), kColumns * kTiles - 1) << section;
    if (schedule.last == 0) continue;
    const int border = schedule.last * kTiles;  // the first place of the last section
    EXPECT_EQ(schedule.at(border - 1), border - 1) << section;
    EXPECT_EQ(schedule.at(border), border) << section;
    EXPECT_EQ(schedule.at(border + 1), border + kTiles) << section;
  }
}

// ---- When the last CTA ends under a causal band ---------------------------------------------------------------------

/// How the CTAs get their places: each takes the next one of all as soon as it is done, or each has every 132nd place.
enum class Deal { from_a_counter, in_turn };

constexpr int kCtas = 132;  // of an H100 or H200

/// Returns by what part of the average the last CTA ends later than the average. Tile i of a column sees tiles - i
/// tiles of keys, and its work is that number. At the beginning CTA i has place i, in both ways.
template <class S>
double lateness(const Launch& launch, Deal deal) {
  const S schedule{S::make(launch.items(), launch.tiles, launch.width())};
  std::int64_t work = 0, last = 0;
  std::vector<std::int64_t> ends(kCtas, 0);
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> free_at(ends.begin(), ends.end());
  for (int place = 0; place < launch.items(); ++place) {
    const std::int64_t keys = launch.tiles - schedule.at(place) % launch.tiles;
    work += keys;
    std::int64_t& own = ends[static_cast<std::size_t>(place % kCtas)];
    own = (deal == Deal::in_turn ? own : free_at.top()) + keys;
    free_at.pop();
    free_at.push(own);
    last = std::max(last, own);
  }
  return static_cast<double>(last) * kCtas / static_cast<double>(work) - 1;
}

/// 16k tokens of 16 heads at d 128 in tiles of 128 rows, where K and V of a head take 512 bytes a token, so that a
/// section of 16 MB has 32k keys.
std::vector<Launch> sixteen_thousand_tokens() {
  std::vector<Launch> out;
  for (int s = 512; s <= 16384; s *= 2) out.push_back({16 * 16384 / s, s / 128, 32768 / s});
  return out;
}

/// With a counter no CTA is idle before the last place is taken. So the last CTA ends later than the average by one
/// tile at most, and at the end of a section tiles have 1 to 3 tiles of keys, where a CTA has 39 (512 keys) to 1001
/// (16k) in all. The figures are 0.6, 0.3, 0.9, 0.4, 0.2 and 0.2 %, for 512 to 16k keys. In turn they are 19 to 29 %: a
/// section has 256 tiles, nearly two for each CTA, so that a CTA gets nearly the same two of every section. Without
/// sections, where tiles are drawn in the order of their numbers, they are 0.9 to 7.4 %, because the last column begins
/// with its longest tile too.
TEST(Sm90Schedule, UnderACausalBandTheLastCtaEndsSoonAfterTheAverage) {
  for (const Launch& launch : sixteen_thousand_tokens()) {
    EXPECT_LE(lateness<Schedule>(launch, Deal::from_a_counter), 0.01) << name(launch);
    EXPECT_GE(lateness<Schedule>(launch, Deal::in_turn), 0.15) << name(launch);
  }
}

// ---- The checks can fail --------------------------------------------------------------------------------------------

struct Broken : Schedule {
  static Broken make(int items, int tiles, const Width& width) { return {Schedule::make(items, tiles, width)}; }
};
/// This schedule leaves the last section as narrow as the others.
struct NarrowLastSection : Broken {
  int at(int place) const {
    const int first = place / (section * tiles) * section, within = place - first * tiles;
    return (first + within % section) * tiles + within / section;
  }
};
/// This schedule begins with the shortest tiles.
struct ShortestFirst : Broken {
  int at(int place) const {
    const int x = Schedule::at(place);
    return x / tiles * tiles + tiles - 1 - x % tiles;
  }
};
/// This schedule finishes a column before it begins the next.
struct ColumnByColumn : Broken {
  int at(int place) const { return place; }
};
/// The columns of its sections are not neighbours.
struct EveryThirdColumn : Broken {
  int at(int place) const {
    const int x = Schedule::at(place), column = x / tiles;
    return (column % section * 3 + column / section) * tiles + x % tiles;
  }
};
/// This schedule gives the item of place 1 at place 0 too.
struct OneTwice : Broken {
  int at(int place) const { return Schedule::at(std::max(place, 1)); }
};
/// This schedule has sections where none are asked for.
struct AlwaysSections : Broken {
  static AlwaysSections make(int items, int tiles, const Width&) { return {Broken::make(items, tiles, {2, 4})}; }
};
/// The last item of this schedule is one too large.
struct PastTheEnd : Broken {
  int at(int place) const { return Schedule::at(place) + (place + 1 == items ? 1 : 0); }
};

TEST(Sm90Schedule, ABrokenScheduleIsFound) {
  const Launch even{4, 3, 2}, uneven{5, 3, 2}, nine{9, 2, 3}, plain{4, 3, 0};
  for (const Launch& launch : {even, uneven, nine, plain}) EXPECT_EQ(check<Broken>(launch), "");
  EXPECT_EQ(check<NarrowLastSection>({2, 3, 2}), "");
  EXPECT_EQ(check<NarrowLastSection>(even), "place 6: tile 0 after tile 2 of the same section");
  EXPECT_EQ(check<ShortestFirst>(even), "place 4: tile 1 after tile 2 of the same section");
  EXPECT_EQ(check<ColumnByColumn>(even), "place 3: tile 0 after tile 2 of the same section");
  EXPECT_EQ(check<EveryThirdColumn>(nine), "place 3: section 0 after 1");
  EXPECT_EQ(check<OneTwice>(plain), "place 0: item 1 without sections");
  EXPECT_EQ(check<OneTwice>(even), "item 0 comes 0 times");
  EXPECT_EQ(check<AlwaysSections>(plain), "place 1: item 3 without sections");
  EXPECT_EQ(check<PastTheEnd>(even), "place 11: there is no item 12");
}

TEST(Sm90Schedule, AScheduleWhoseEndIsLateIsFound) {
  const Launch launch{16, 128, 2};  // 16k tokens in one sequence
  EXPECT_GE(lateness<ShortestFirst>(launch, Deal::from_a_counter), 0.02);
  const Launch short_ones{128, 16, 16};
  EXPECT_GE(lateness<ColumnByColumn>(short_ones, Deal::from_a_counter), 0.02);
}

}  // namespace
}  // namespace falchion::testing
