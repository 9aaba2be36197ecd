// tests/sm90_rings_test.cpp: shows that no warp of a Hopper CTA waits for something that only it can give back. It is a
// model of who waits for whom in src/sm90/attention_forward.cuh and attention_load.cuh (docs/design/sm90_forward.md,
// "Who waits for whom"). The scheduler, the producer and the consumers are coroutines that wait and arrive in the
// kernel's order, on the real Schedule and with the real number of stages. In each step a random one of those that can
// go on does so, until all have ended or none can go on. The model also checks that whoever reads a stage finds there
// what it expects.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "plan/text.hpp"
#include "support/host_warp.hpp"
#include "support/random.hpp"
#include "support/roles.hpp"

#include "sm90/attention_forward_config.hpp"
#include "sm90/attention_schedule.hpp"

namespace falchion::testing {
namespace {

using sm90::AttentionForwardConfig, sm90::Kind, sm90::Schedule;

// ---- The model of one CTA -------------------------------------------------------------------------------------------

/// One tile of rows. keys is the number of tiles of keys that it visits, which is 0 if its rows see none. skipped says
/// how many of them each consumer passes over because none of its rows sees them. If clear is true the last tile of
/// keys is ragged, so the consumers have to meet to clear V.
struct ModelTile {
  int keys = 0;
  std::array<int, 4> skipped{};
  bool clear = false;
};

/// When a consumer gives the record of a tile back. The kernel used to do so after it had stored the tile's O. It
/// looked for the next tile before that, while it still held the record.
enum class GiveBack { before_it_looks, after_it_stores };

struct Sizes {
  int consumers, tiles, stages_q, stages;
  bool ping_pong;
  bool next_k_first;  // K of the next tile of keys comes before V of this one; else the steps follow one another
};
template <class Config>
constexpr Sizes sizes_of() {
  return {Config::kConsumers, Config::kTiles,    Config::kStagesQ,
          Config::kStages,    Config::kPingPong, Config::kNextKFirst};
}

class Cta {
 public:
  Cta(const Sizes& size, std::vector<ModelTile> list, GiveBack give_back)
      : size(size), list(std::move(list)), give_back(give_back) {
    const auto ring = [](int stages, int expected) {
      return std::vector<Barrier>(static_cast<std::size_t>(stages), {expected});
    };
    full_tile = ring(size.tiles, 1);
    empty_tile = ring(size.tiles, size.consumers + 1);
    full_q = ring(size.stages_q, 1);
    empty_q = ring(size.stages_q, size.consumers);
    full_k = full_v = ring(size.stages, 1);
    empty_k = empty_v = ring(size.stages, size.consumers);
    turn = ring(size.consumers, 2);
    meeting = {size.consumers};
    in_tile.resize(full_tile.size());
    in_q.resize(full_q.size());
    in_k.resize(full_k.size());
    in_v = in_k;
  }

  /// Returns "" if all roles end. Otherwise it says who waits, or what a role found in the wrong place.
  std::string run(std::uint64_t seed) {
    std::vector<Role> roles;
    roles.push_back(schedule());
    roles.push_back(produce());
    for (int w = 0; w < size.consumers; ++w) roles.push_back(size.next_k_first ? consume(w) : consume_in_order(w));
    for (std::uint64_t step = 0;; ++step) {
      std::vector<const Role*> ready;
      for (const Role& role : roles) {
        if (role.can_go_on()) ready.push_back(&role);
      }
      if (ready.empty()) break;
      const Role& next = *ready[random_bits(seed, step) % ready.size()];
      next.go_on();
      if (next.done() && !next.failure().empty()) return next.failure();
    }
    std::string waiting;
    for (std::size_t i = 0; i < roles.size(); ++i) {
      if (!roles[i].done()) waiting += (i == 0 ? " scheduler" : i == 1 ? " producer" : text(" consumer ", i - 2));
    }
    if (!waiting.empty()) return "deadlock:" + waiting;
    const auto stored_once = static_cast<std::size_t>(size.consumers);
    return stored == stored_once * list.size() ? "" : text(stored, " stores for ", list.size(), " tiles");
  }

 private:
  static Barrier& at(std::vector<Barrier>& ring, const At& at) { return ring[static_cast<std::size_t>(at.stage)]; }
  static int& at(std::vector<int>& ring, const At& at) { return ring[static_cast<std::size_t>(at.stage)]; }
  static Wait is_full(std::vector<Barrier>& ring, const At& position) { return {&at(ring, position), position.parity}; }
  static Wait is_empty(std::vector<Barrier>& ring, const At& position) {
    return {&at(ring, position), position.parity ^ 1};
  }
  /// Arrives at a named barrier and waits for all others.
  static Wait joins(Barrier& barrier) {
    const int phases = barrier.phases;
    barrier.arrive();
    return {&barrier, phases % 2};
  }
  const ModelTile& tile(int index) const { return list[static_cast<std::size_t>(index)]; }
  int end() const { return static_cast<int>(list.size()); }
  /// What a stage holds: the number of a tile of rows and of one of its tiles of keys, counted from the last keys on.
  static int content(int tile, int key) { return tile * 1000 + key; }

  Role schedule() {
    At now{size.tiles};
    for (int i = 0; i <= end(); ++i) {
      co_await is_empty(empty_tile, now);
      at(in_tile, now) = i;
      at(full_tile, now).arrive();
      now.advance();
    }
    co_return "";
  }

  Role produce() {
    At k{size.stages}, v{size.stages}, q{size.stages_q};
    for (At now{size.tiles};; at(empty_tile, now).arrive(), now.advance()) {
      co_await is_full(full_tile, now);
      const int i = at(in_tile, now);
      if (i == end()) break;
      const int keys = tile(i).keys;
      if (keys == 0) continue;
      co_await is_empty(empty_q, q);
      at(in_q, q) = i;
      at(full_q, q).arrive();
      q.advance();
      const int ahead = size.next_k_first ? 1 : 0;
      for (int n = 0; n < keys + ahead; ++n) {  // K of tile n is followed by V of the tile before it, or by its own V.
        if (n < keys) {
          co_await is_empty(empty_k, k);
          at(in_k, k) = content(i, n);
          at(full_k, k).arrive();
          k.advance();
        }
        if (n >= ahead) {
          co_await is_empty(empty_v, v);
          at(in_v, v) = content(i, n - ahead);
          at(full_v, v).arrive();
          v.advance();
        }
      }
    }
    co_return "";
  }

  /// Arrives at the barrier of the stage at `x`, and goes on to the next stage.
  static void give(std::vector<Barrier>& barriers, At* x) {
    at(barriers, *x).arrive();
    x->advance();
  }

  /// This is Consumer::run of the kernel. Comments name the parts that are find_tile, start_first_s, walk and
  /// store_tile there.
  Role consume(int w) {
    At now{size.tiles}, k{size.stages}, v{size.stages}, q{size.stages_q};
    int wrong = 0;  // Counts the stages that held something else.
    const auto wants = [&wrong](int found, int expected) { wrong += found != expected; };
    const auto own = static_cast<std::size_t>(w), next = static_cast<std::size_t>((w + 1) % size.consumers);
    const bool turns = size.ping_pong;
    if (turns && w == size.consumers - 1) turn[next].arrive();

    int i = -1, stage_v = 0;
    bool holds = false;  // Whether the consumer holds the record of tile i while it looks for the next tile.
    At held = now;
    for (bool first = true;; first = false) {
      const int before = i;
      if (!first) {  // At the end of walk() the last O += P V has been started.
        held = now;
        now.advance();
        holds = give_back == GiveBack::after_it_stores;
        if (!holds) at(empty_tile, held).arrive();
      }
      for (;; at(empty_tile, now).arrive(), now.advance()) {  // This loop is find_tile.
        co_await is_full(full_tile, now);
        i = at(in_tile, now);
        if (i == end() || tile(i).keys > 0) break;
        ++stored;  // These rows see nothing.
      }
      const bool more = i < end();
      const int skipped = more ? tile(i).skipped[own] : 0;
      if (more) {  // This is start_first_s.
        co_await is_full(full_q, q);
        wants(at(in_q, q), i);
        co_await is_full(full_k, k);
        for (int n = 0; n < skipped; ++n) {
          wants(at(in_k, k), content(i, n));
          give(empty_k, &k);
          co_await is_full(full_k, k);
        }
        wants(at(in_k, k), content(i, skipped));
      }
      if (!first) {  // This is store_tile: O of the tile before is stored.
        empty_v[static_cast<std::size_t>(stage_v)].arrive();
        ++stored;
        if (holds) at(empty_tile, held).arrive();
      }
      if (!more) break;
      if (before >= i) co_return text("tile ", i, " after tile ", before);

      // From here on this is walk(). S of the first tile of keys is complete.
      give(empty_k, &k);
      for (int n = 0; n < skipped; ++n) {
        co_await is_full(full_v, v);
        give(empty_v, &v);
        if (!turns) continue;
        co_await joins(turn[own]);
        turn[next].arrive();
      }
      co_await is_full(full_v, v);
      if (tile(i).clear) co_await joins(meeting);
      for (int n = skipped + 1; n < tile(i).keys; ++n) {
        co_await is_full(full_k, k);
        wants(at(in_k, k), content(i, n));
        if (turns) co_await joins(turn[own]);
        wants(at(in_v, v), content(i, n - 1));
        stage_v = v.stage;
        v.advance();  // This is start_o.
        if (turns) turn[next].arrive();
        give(empty_k, &k);
        co_await is_full(full_v, v);
        empty_v[static_cast<std::size_t>(stage_v)].arrive();  // This is wait_o.
      }
      give(empty_q, &q);
      wants(at(in_v, v), content(i, tile(i).keys - 1));
      stage_v = v.stage;
      v.advance();  // This is start_o of the last tile of keys.
    }
    co_return wrong == 0 ? "" : text("consumer ", w, " found ", wrong, " stages with something else");
  }

  /// This is HalvesConsumer::run. It gives the record of a tile back when it has stored the tile.
  Role consume_in_order(int w) {
    At now{size.tiles}, k{size.stages}, v{size.stages}, q{size.stages_q};
    int wrong = 0;  // Counts the stages that held something else.
    for (;; at(empty_tile, now).arrive(), now.advance()) {
      co_await is_full(full_tile, now);
      const int i = at(in_tile, now);
      if (i == end()) break;
      ++stored;
      if (tile(i).keys == 0) continue;
      for (int n = 0; n < tile(i).keys; ++n) {
        if (n == tile(i).skipped[static_cast<std::size_t>(w)]) co_await is_full(full_q, q);
        co_await is_full(full_k, k);
        wrong += at(in_k, k) != content(i, n);
        give(empty_k, &k);
        co_await is_full(full_v, v);
        wrong += at(in_v, v) != content(i, n);
        give(empty_v, &v);
      }
      wrong += at(in_q, q) != i;
      give(empty_q, &q);
    }
    co_return wrong == 0 ? "" : text("consumer ", w, " found ", wrong, " stages with something else");
  }

  const Sizes size;
  const std::vector<ModelTile> list;
  const GiveBack give_back;
  std::vector<Barrier> full_tile, empty_tile, full_q, empty_q, full_k, empty_k, full_v, empty_v, turn;
  Barrier meeting;
  std::vector<int> in_tile, in_q, in_k, in_v;
  std::size_t stored = 0;
};

// ---- Lists of tiles -------------------------------------------------------------------------------------------------

ModelTile draw_tile(const Sizes& size, int most_skipped, std::uint64_t seed, double empty) {
  ModelTile out;
  if (random_uniform(seed, 0) < empty) return out;
  out.keys = 1 + static_cast<int>(random_bits(seed, 1) % 7);
  out.clear = random_bits(seed, 2) % 2 == 0;
  if (out.clear) return out;  // Then no consumer passes over a tile, because all have to meet on the last one.
  int least = 0;
  for (int w = size.consumers - 2; w >= 0; --w) {  // Later warpgroups see more keys.
    least += static_cast<int>(random_bits(seed, static_cast<std::uint64_t>(3 + w)) % 2);
    out.skipped[static_cast<std::size_t>(w)] = std::min({least, out.keys - 1, most_skipped});
  }
  return out;
}

/// Draws the tiles of each CTA of a launch, as the real Schedule deals them out. Some or all tiles of a column are
/// empty.
std::vector<std::vector<ModelTile>> draw_launch(const Sizes& size, int most_skipped, std::uint64_t seed) {
  const int columns = 1 + static_cast<int>(random_bits(seed, 0) % 6),
            tiles = 1 + static_cast<int>(random_bits(seed, 1) % 9);
  const int ctas = 1 + static_cast<int>(random_bits(seed, 2) % 5);
  constexpr double kEmpty[] = {0, 0.1, 0.5, 0.75, 0.9, 1};
  const double empty = kEmpty[random_bits(seed, 3) % 6];
  const Schedule schedule = Schedule::make(columns * tiles, tiles, random_bits(seed, 4) % 2 == 0);
  std::vector<std::vector<ModelTile>> lists;
  for (int cta = 0; cta < ctas; ++cta) {
    std::vector<ModelTile>& list = lists.emplace_back();
    bool second = false;
    for (int unit = cta, x = 0; x != Schedule::kNoMore;) {
      x = schedule.at(unit, second);
      schedule.advance(ctas, &unit, &second);
      if (x >= 0)
        list.push_back(draw_tile(size, most_skipped, random_bits(seed, static_cast<std::uint64_t>(100 + x)), empty));
    }
  }
  return lists;
}

template <class Config>
constexpr int most_skipped() {
  return (Config::kRows - 64 + Config::kKeys - 1) / Config::kKeys;
}

/// Returns "" or the first launch that does not end.
template <class Config>
std::string check(GiveBack give_back, int launches) {
  constexpr Sizes size = sizes_of<Config>();
  for (int n = 0; n < launches; ++n) {
    const auto seed = static_cast<std::uint64_t>(n);
    for (const auto& list : draw_launch(size, most_skipped<Config>(), seed)) {
      if (const std::string bad = Cta(size, list, give_back).run(seed); !bad.empty())
        return text("launch ", n, ", ", list.size(), " tiles: ", bad);
    }
  }
  return "";
}

using bf16 = sm90::bf16;
using Brief64 = AttentionForwardConfig<bf16, 64, Kind::brief>;
using Plain64 = AttentionForwardConfig<bf16, 64, Kind::plain>;
using Plain128 = AttentionForwardConfig<bf16, 128, Kind::plain>;
using Plain192 = AttentionForwardConfig<bf16, 192, Kind::plain>;
using Plain256 = AttentionForwardConfig<bf16, 256, Kind::plain>;
using Mla192 = AttentionForwardConfig<bf16, 192, Kind::mla>;
using Halves64 = AttentionForwardConfig<sm90::f16, 64, Kind::halves>;
using Halves128 = AttentionForwardConfig<sm90::f16, 128, Kind::halves>;
using Halves256 = AttentionForwardConfig<sm90::f16, 256, Kind::halves>;

constexpr int kLaunches = 1500;

TEST(Sm90Rings, EveryLaunchEnds) {
  EXPECT_EQ(check<Brief64>(GiveBack::before_it_looks, kLaunches), "");
  EXPECT_EQ(check<Plain64>(GiveBack::before_it_looks, kLaunches), "");
  EXPECT_EQ(check<Plain128>(GiveBack::before_it_looks, kLaunches), "");
  EXPECT_EQ(check<Plain192>(GiveBack::before_it_looks, kLaunches), "");
  EXPECT_EQ(check<Plain256>(GiveBack::before_it_looks, kLaunches), "");
  EXPECT_EQ(check<Mla192>(GiveBack::before_it_looks, kLaunches), "");
  EXPECT_EQ(check<Halves64>(GiveBack::after_it_stores, kLaunches), "");
  EXPECT_EQ(check<Halves128>(GiveBack::after_it_stores, kLaunches), "");
  EXPECT_EQ(check<Halves256>(GiveBack::after_it_stores, kLaunches), "");
}

/// Consumers whose steps follow one another may pass over more tiles of keys than the ring has stages, and find any
/// number of tiles without keys after that.
TEST(Sm90Rings, MoreSkippedThanStagesEndsInOrder) {
  const Sizes size = sizes_of<Halves256>();
  EXPECT_EQ(size.stages, 1);
  const ModelTile tile{.keys = 8, .skipped = {5, 0}}, empty{};
  EXPECT_EQ(Cta(size, {tile, empty, empty, empty, empty, tile}, GiveBack::after_it_stores).run(1), "");
}

/// Two tiles without keys follow one with keys. In the old order the consumer then waited for the next record, which
/// the scheduler could write only after the consumer had given its own record back.
TEST(Sm90Rings, TheOrderOfBeforeHangs) {
  const ModelTile full{.keys = 2}, empty{};
  const auto before = [](std::vector<ModelTile> list) {
    return Cta(sizes_of<Plain128>(), std::move(list), GiveBack::after_it_stores).run(1);
  };
  EXPECT_EQ(before({full, full, full, full}), "");
  EXPECT_EQ(before({empty, empty, empty, empty, empty, full}), "");
  EXPECT_EQ(before({full, empty, full, empty, full}), "");
  EXPECT_EQ(before({full, empty, empty}), "deadlock: scheduler producer consumer 0 consumer 1");
  EXPECT_NE(check<Plain64>(GiveBack::after_it_stores, kLaunches), "");
  EXPECT_NE(check<Plain128>(GiveBack::after_it_stores, kLaunches), "");
  EXPECT_NE(check<Brief64>(GiveBack::after_it_stores, kLaunches), "");
}

/// A consumer that passes over more tiles of keys than the ring has stages would wait for itself. The config forbids
/// that (static_assert in attention_forward_config.hpp).
TEST(Sm90Rings, MoreSkippedThanStagesHangs) {
  const Sizes size = sizes_of<Plain128>();
  const ModelTile tile{.keys = 8, .skipped = {5, 0}};
  EXPECT_EQ(Cta(size, {tile}, GiveBack::before_it_looks).run(1).rfind("deadlock", 0), 0U);
}

}  // namespace
}  // namespace falchion::testing
