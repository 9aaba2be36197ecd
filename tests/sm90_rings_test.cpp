// tests/sm90_rings_test.cpp: shows that no warp of a Hopper CTA waits for something that only it can give back
// (docs/design/sm90_forward.md, "Who waits for whom"). It runs the model of a CTA (support/hopper_cta.hpp) with the
// real number of stages on lists of tiles in the order of the real Schedule, and finds the orders of waiting that hang.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "plan/text.hpp"
#include "support/hopper_cta.hpp"
#include "support/host_warp.hpp"
#include "support/random.hpp"

#include "sm90/attention_forward/config.hpp"
#include "sm90/attention_forward/schedule.hpp"

namespace falchion::testing {
namespace {

using sm90::AttentionForwardConfig, sm90::Kind, sm90::Schedule, sm90::Turns;

template <class Config>
constexpr Sizes sizes_of(bool turns = Config::kTurns != Turns::never) {
  return {Config::kConsumers, Config::kTiles,      Config::kStagesQ,  Config::kStages, turns,
          Config::kEarly > 0, Config::kNextKFirst, Config::kProducers};
}

// ---- Lists of tiles -------------------------------------------------------------------------------------------------

ModelTile draw_tile(const Sizes& size, int most_skipped, std::uint64_t seed, double empty) {
  ModelTile out;
  if (random_uniform(seed, 0) < empty) return out;
  out.keys = 1 + static_cast<int>(random_bits(seed, 1) % 11);
  out.clear = random_bits(seed, 2) % 2 == 0;
  if (out.clear) return out;  // Then no consumer passes over a tile, because all have to meet on the last one.
  int least = 0;
  for (int w = size.consumers - 2; w >= 0; --w) {  // Later warpgroups see more keys.
    least += static_cast<int>(random_bits(seed, static_cast<std::uint64_t>(3 + w)) % 2);
    out.skipped[static_cast<std::size_t>(w)] = std::min({least, out.keys - 1, most_skipped});
  }
  return out;
}

/// Draws the tiles of each CTA of a launch in the order of the real Schedule: the first place of a CTA is its own
/// number, and after that any of them may be the next to draw from the counter. Some or all tiles of a column are
/// empty.
std::vector<std::vector<ModelTile>> draw_launch(const Sizes& size, int most_skipped, std::uint64_t seed) {
  const int columns = 1 + static_cast<int>(random_bits(seed, 0) % 6),
            tiles = 1 + static_cast<int>(random_bits(seed, 1) % 9);
  const std::uint64_t ctas = 1 + random_bits(seed, 2) % 5;
  constexpr double kEmpty[] = {0, 0.1, 0.5, 0.75, 0.9, 1};
  const double empty = kEmpty[random_bits(seed, 3) % 6];
  const auto section = static_cast<std::int64_t>(random_bits(seed, 4) % 4);
  const Schedule schedule = Schedule::make(columns * tiles, tiles, {section, 2 * section});
  std::vector<std::vector<ModelTile>> lists(static_cast<std::size_t>(ctas));
  for (int place = 0; place < schedule.items; ++place) {
    const auto number = static_cast<std::uint64_t>(place);
    const std::uint64_t cta = number < ctas ? number : random_bits(seed, 5000 + number) % ctas;
    const auto item = static_cast<std::uint64_t>(schedule.at(place));
    lists[static_cast<std::size_t>(cta)].push_back(draw_tile(size, most_skipped, random_bits(seed, 100 + item), empty));
  }
  return lists;
}

template <class Config>
constexpr int most_skipped() {
  return (Config::kRows - 64 + Config::kKeys - 1) / Config::kKeys;
}

/// Returns "" or the first launch that does not end. A variant whose turns depend on the band is tested with them and
/// without.
template <class Config>
std::string check(const Order& order, int launches) {
  const bool with = Config::kTurns != Turns::never, without = Config::kTurns != Turns::always;
  for (int n = 0; n < launches; ++n) {
    const auto seed = static_cast<std::uint64_t>(n);
    for (const auto& list : draw_launch(sizes_of<Config>(), most_skipped<Config>(), seed)) {
      for (const bool turns : {false, true}) {
        if (!(turns ? with : without)) continue;
        if (const std::string bad = Cta(sizes_of<Config>(turns), list, order).run(seed); !bad.empty())
          return text("launch ", n, ", ", list.size(), turns ? " tiles in turns: " : " tiles: ", bad);
      }
    }
  }
  return "";
}

using bf16 = sm90::bf16;
using Brief64 = AttentionForwardConfig<bf16, 64, Kind::plain, VariantTile::brief>;
using Brief128 = AttentionForwardConfig<bf16, 128, Kind::plain, VariantTile::brief>;
using Plain64 = AttentionForwardConfig<bf16, 64, Kind::plain>;
using Plain128 = AttentionForwardConfig<bf16, 128, Kind::plain>;
using Plain192 = AttentionForwardConfig<bf16, 192, Kind::plain>;
using Plain256 = AttentionForwardConfig<bf16, 256, Kind::plain>;
using Mla192 = AttentionForwardConfig<bf16, 192, Kind::plain, VariantTile::mla>;
using Pages64 = AttentionForwardConfig<bf16, 64, Kind::pages>;
using Pages128 = AttentionForwardConfig<bf16, 128, Kind::pages>;
using Halves64 = AttentionForwardConfig<sm90::f16, 64, Kind::halves>;
using Halves128 = AttentionForwardConfig<sm90::f16, 128, Kind::halves>;
using Halves256 = AttentionForwardConfig<sm90::f16, 256, Kind::halves>;

constexpr int kLaunches = 1500;

/// Runs the list on a CTA of plain d 128, which has two consumers and two stages.
std::string run(std::vector<ModelTile> list, const Order& order) {
  return Cta(sizes_of<Plain128>(), std::move(list), order).run(1);
}

constexpr ModelTile kEmpty{}, kFull{.keys = 2}, kLong{.keys = 9};

TEST(Sm90Rings, EveryLaunchEnds) {
  EXPECT_EQ(check<Brief64>({}, kLaunches), "");
  EXPECT_EQ(check<Brief128>({}, kLaunches), "");
  EXPECT_EQ(check<Plain64>({}, kLaunches), "");
  EXPECT_EQ(check<Plain128>({}, kLaunches), "");
  EXPECT_EQ(check<Plain192>({}, kLaunches), "");
  EXPECT_EQ(check<Plain256>({}, kLaunches), "");
  EXPECT_EQ(check<Mla192>({}, kLaunches), "");
  EXPECT_EQ(check<Pages64>({}, kLaunches), "");
  EXPECT_EQ(check<Pages128>({}, kLaunches), "");
  EXPECT_EQ(check<Halves64>({}, kLaunches), "");
  EXPECT_EQ(check<Halves128>({}, kLaunches), "");
  EXPECT_EQ(check<Halves256>({}, kLaunches), "");
}

/// Consumers whose steps follow one another may pass over more tiles of keys than the ring has stages, and find any
/// number of tiles without keys after that.
TEST(Sm90Rings, MoreSkippedThanStagesEndsInOrder) {
  const Sizes size = sizes_of<Halves256>();
  EXPECT_EQ(size.stages, 1);
  const ModelTile tile{.keys = 8, .skipped = {5, 0}};
  EXPECT_EQ(Cta(size, {tile, kEmpty, kEmpty, kEmpty, kEmpty, tile}).run(1), "");
}

/// Every list of up to five tiles of rows, each of which has no keys, one or two tiles of keys (fewer than the stages
/// of a ring, or as many), the most that are wanted at once (4), or one more. The first consumer passes over as many
/// tiles of keys as the ring has stages, where there are so many.
TEST(Sm90Rings, EveryShortListEnds) {
  constexpr int kKeys[] = {0, 1, 2, 4, 5};
  const Sizes size = sizes_of<Plain128>();
  for (int count = 0, lists = 1; count <= 5; ++count, lists *= 5) {
    for (int number = 0; number < lists; ++number) {
      std::vector<ModelTile> list;
      for (int i = 0, rest = number; i < count; ++i, rest /= 5) {
        ModelTile& tile = list.emplace_back();
        tile.keys = kKeys[rest % 5];
        tile.skipped[0] = std::max(0, std::min(tile.keys - 1, size.stages));
      }
      ASSERT_EQ(Cta(size, list).run(static_cast<std::uint64_t>(number)), "") << count << " tiles, list " << number;
    }
  }
}

/// A tile without keys follows one with keys. In the old order the consumer then waited for the next record while it
/// still held the first one, and the ring has two: the scheduler could not write the next record before the consumer
/// had given its own back. (With the three records of that time it took two tiles without keys.)
TEST(Sm90Rings, TheOrderOfBeforeHangs) {
  const Order before{.give_back = GiveBack::after_it_stores};
  EXPECT_EQ(run({kFull, kFull, kFull, kFull}, before), "");
  EXPECT_EQ(run({kEmpty, kEmpty, kEmpty, kEmpty, kEmpty, kFull}, before), "");
  EXPECT_EQ(run({kFull, kEmpty}, before), "deadlock: scheduler producer consumer 0 consumer 1");
  EXPECT_EQ(run({kFull, kEmpty, kFull}, before), "deadlock: scheduler producer consumer 0 consumer 1");
  EXPECT_NE(check<Plain64>(before, kLaunches), "");
  EXPECT_NE(check<Plain128>(before, kLaunches), "");
  EXPECT_NE(check<Brief64>(before, kLaunches), "");
}

/// If the producer wants the next record only after all loads of a tile, the kernel is slow and does not hang: a
/// consumer looks for its next record when the last V has come, and by then the producer has wanted that record. But
/// the scheduler's 2 us begin no earlier than that.
TEST(Sm90Rings, ARecordThatIsWantedLateIsOnlySlow) {
  const Order late{.wants = Wants::after_the_loads};
  EXPECT_EQ(check<Brief64>(late, kLaunches), "");
  EXPECT_EQ(check<Plain64>(late, kLaunches), "");
  EXPECT_EQ(check<Plain128>(late, kLaunches), "");
}

/// A consumer holds the last V of a tile until it has found the next tile with keys. So the producer must not wait for
/// this V before it wants the next record.
TEST(Sm90Rings, ARecordThatIsWantedAfterTheLastVHangs) {
  const Order too_late{.wants = Wants::after_the_last_v};
  EXPECT_EQ(run({kEmpty, kEmpty}, too_late), "") << "without keys there is no V";
  EXPECT_EQ(run({kFull}, too_late), "deadlock: scheduler producer consumer 0 consumer 1");
  EXPECT_EQ(run({kLong, kFull}, too_late), "deadlock: scheduler producer consumer 0 consumer 1");
}

/// The scheduler waits after each record but the last. So the producer has to want a record once for each tile.
TEST(Sm90Rings, ARecordMustBeWantedOnceForEachTile) {
  const Order not_for_all{.wants = Wants::not_for_tiles_without_keys};
  EXPECT_EQ(run({kFull, kLong, kFull}, not_for_all), "");
  EXPECT_EQ(run({kFull, kEmpty, kFull}, not_for_all), "deadlock: scheduler producer consumer 0 consumer 1");
  const Order too_often{.wants = Wants::at_each_of_the_last_tiles};
  EXPECT_EQ(run({kEmpty, ModelTile{.keys = 1}}, too_often), "");
  EXPECT_NE(run({kLong}, too_often), "");
}

/// A consumer that passes over more tiles of keys than the ring has stages would wait for itself. The config forbids
/// that (static_assert in sm90/attention_forward/config.hpp).
TEST(Sm90Rings, MoreSkippedThanStagesHangs) {
  const ModelTile as_many{.keys = 8, .skipped = {2, 0}}, more{.keys = 8, .skipped = {5, 0}};
  EXPECT_EQ(run({as_many, as_many, as_many}, {}), "");
  EXPECT_EQ(run({more}, {}).rfind("deadlock", 0), 0U);
}

}  // namespace
}  // namespace falchion::testing
