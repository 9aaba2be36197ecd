// tests/sm90_schedule_test.cpp: tests the order in which Hopper's CTAs work on the tiles
// (src/sm90/attention_schedule.hpp). Each tile must be worked on once, and under a causal band no CTA may have much
// more to do than the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/text.hpp"

#include "sm90/attention_schedule.hpp"

namespace falchion::testing {
namespace {

using sm90::Schedule;

struct Launch {
  int columns, tiles, ctas;
  bool pairs;
  int items() const { return columns * tiles; }
};
std::string name(const Launch& x) {
  return text(x.columns, " columns of ", x.tiles, " tiles", x.pairs ? " in pairs" : "", ", ", x.ctas, " CTAs");
}

/// Collects the items of one CTA in the way in which plan_tiles of src/sm90/attention_load.cuh asks for them. It asks a
/// few times more, because a schedule that has ended must stay so.
template <class S>
std::string walk(const S& schedule, const Launch& launch, int cta, std::vector<int>* items) {
  int unit = cta;
  bool second = false;
  const auto next = [&] {
    const int x = schedule.at(unit, second);
    schedule.advance(launch.ctas, &unit, &second);
    return x;
  };
  int x = next();
  for (; x != S::kNoMore; x = next()) {
    if (x == S::kNone) continue;
    if (x < 0 || x >= launch.items()) return text("CTA ", cta, ": there is no item ", x);
    items->push_back(x);
    if (static_cast<int>(items->size()) > launch.items()) return text("CTA ", cta, " finds no end");
  }
  for (int i = 0; i < 5; ++i) {
    if (x = next(); x != S::kNoMore) return text("CTA ", cta, ": ", x, " after the end");
  }
  return "";
}

/// Returns the work under a causal band, where tile i of a column has i + 1 tiles of keys.
std::int64_t triangle_work(const std::vector<int>& items, int tiles) {
  std::int64_t work = 0;
  for (const int x : items) work += x % tiles + 1;
  return work;
}

/// Walks every CTA, and returns "" or the first thing that is wrong.
template <class S>
std::string check(const Launch& launch) {
  const S schedule{S::make(launch.items(), launch.tiles, launch.pairs)};
  std::vector<int> times(static_cast<std::size_t>(launch.items()));
  std::int64_t most = 0, least = INT64_MAX;
  for (int cta = 0; cta < launch.ctas; ++cta) {
    std::vector<int> items;
    if (const std::string bad = walk(schedule, launch, cta, &items); !bad.empty()) return bad;
    for (const int x : items) ++times[static_cast<std::size_t>(x)];
    const std::int64_t work = triangle_work(items, launch.tiles);
    most = std::max(most, work);
    least = std::min(least, work);
  }
  for (std::size_t x = 0; x < times.size(); ++x) {
    if (times[x] != 1) return text("item ", x, " comes ", times[x], " times");
  }
  if (!launch.pairs || launch.items() == 0) return "";
  // Each unit is a pair. Only the middle tile of the last column may be alone.
  const std::int64_t pair = launch.tiles + 1, rounds = (schedule.units + launch.ctas - 1) / launch.ctas;
  if (most > pair * rounds) return text("one CTA has work ", most, ", more than ", rounds, " pairs");
  if (most - least > pair) return text("one CTA has work ", most, ", another ", least);
  return "";
}

/// Calls f for every small launch and for some of real sizes, with as many CTAs as the plan and the launcher have, and
/// with other numbers.
template <class F>
void for_each_launch(F f) {
  for (const bool pairs : {false, true}) {
    for (int columns = 0; columns <= 7; ++columns)
      for (int tiles = 1; tiles <= 9; ++tiles)
        for (int ctas = 1; ctas <= 70; ++ctas) f(Launch{columns, tiles, ctas, pairs});
    for (const int columns : {1, 2, 15, 16, 33, 64, 128})
      for (const int tiles : {1, 2, 3, 11, 16, 43, 64, 127})
        for (const int ctas : {78, 114, 132, columns * tiles}) f(Launch{columns, tiles, ctas, pairs});
  }
}

TEST(Sm90Schedule, EachItemOnceAndFairly) {
  for_each_launch([&](const Launch& launch) { ASSERT_EQ(check<Schedule>(launch), "") << name(launch); });
}

/// Checks which items a unit has, as the comment in attention_schedule.hpp says, on the smallest examples.
TEST(Sm90Schedule, Pairs) {
  const auto all = [](const Schedule& s) {
    std::string out;
    for (int unit = 0; unit < s.units; ++unit)
      out += text(unit > 0 ? ", " : "", s.at(unit, false), " ", s.at(unit, true));
    return out;
  };
  EXPECT_EQ(all(Schedule::make(8, 4, true)), "0 3, 1 2, 4 7, 5 6") << "of one column";
  EXPECT_EQ(all(Schedule::make(6, 3, true)), "0 5, 1 4, 2 3") << "across two";
  EXPECT_EQ(all(Schedule::make(9, 3, true)), "0 5, 1 4, 2 3, 6 8, 7 -1") << "the last middle one alone";
  EXPECT_EQ(Schedule::make(8, 4, false).units, 8);
  EXPECT_EQ(Schedule::make(0, 0, true).units, 0);
}

// ---- The check can fail ---------------------------------------------------------------------------------------------

struct Broken : Schedule {
  static Broken make(int items, int tiles, bool pairs) { return {Schedule::make(items, tiles, pairs)}; }
};
/// This schedule takes the middle tile of a column as the second one of its pair too.
struct TwiceTheMiddle : Broken {
  int at(int unit, bool second) const {
    const int x = Schedule::at(unit, second);
    return x == kNone ? Schedule::at(unit, false) : x;
  }
};
/// This schedule forgets the second tile of each pair.
struct HalfAPair : Broken {
  void advance(int ctas, int* unit, bool*) const { *unit += ctas; }
};
/// This schedule pairs neighbours and not the first tile with the last one. Each tile comes once, but the last CTA has
/// the longest ones.
struct Neighbours : Broken {
  int at(int unit, bool second) const { return unit >= units ? kNoMore : 2 * unit + (second ? 1 : 0); }
};
/// This schedule has one unit too many.
struct OneTooMany : Broken {
  int at(int unit, bool second) const { return unit == units ? unit : Schedule::at(unit, second); }
};
/// This schedule starts again after the end.
struct Endless : Broken {
  int at(int unit, bool second) const { return unit == units + 3 ? 0 : Schedule::at(unit, second); }
};

TEST(Sm90Schedule, ABrokenScheduleIsFound) {
  const Launch odd{1, 5, 2, true}, even{1, 8, 4, true}, uneven{1, 8, 3, true}, items{1, 4, 3, false};
  EXPECT_EQ(check<Broken>(odd), "");
  EXPECT_EQ(check<Broken>(even), "");
  EXPECT_EQ(check<Broken>(uneven), "");
  EXPECT_EQ(check<Broken>(items), "");
  EXPECT_EQ(check<TwiceTheMiddle>(odd), "item 2 comes 2 times");
  EXPECT_EQ(check<HalfAPair>(even), "item 4 comes 0 times");
  EXPECT_EQ(check<Neighbours>(even), "one CTA has work 15, more than 1 pairs");
  EXPECT_EQ(check<Neighbours>(uneven), "one CTA has work 18, another 7");
  EXPECT_EQ(check<OneTooMany>(items), "CTA 1: there is no item 4");
  EXPECT_EQ(check<Endless>(items), "CTA 1: 0 after the end");
}

}  // namespace
}  // namespace falchion::testing
