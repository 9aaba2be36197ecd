// tests/sm90_backward_rings_test.cpp: shows that no warp of a CTA of Hopper's backward kernel that goes on to the next
// tile of keys waits for what only it can give back, and that each finds what it expects. It runs a model that has only
// the waits and arrivals of src/sm90/attention_backward/kernel.cuh, load.cuh and sums.cuh, with the real numbers of
// stages. Roles are coroutines, and a random one of those that can go on does so.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/text.hpp"
#include "support/random.hpp"
#include "support/roles.hpp"
#include "tiles/attention_backward/sm90.hpp"

namespace falchion::testing {
namespace {

/// What is done otherwise than in the kernel, to see that the model finds it.
enum class Mistake {
  none,
  k_given_back_before_the_last_dq,
  v_given_back_before_the_last_dp,
  v_loaded_without_waiting,
  k_and_v_keep_their_places,
  last_ds_kept,
  last_q_kept,
  dq_counted_anew_in_each_tile,
  record_given_back_by_consumers_alone,
  first_turn_passed_in_each_tile
};

constexpr int kConsumers = sm90::BackwardTiles::kConsumers, kStagesDs = sm90::BackwardTiles::kStagesDs;

/// One CTA. A list has the steps of each of its tiles of keys: 0 where no row sees the keys.
class BackwardCta {
 public:
  BackwardCta(std::vector<int> list, bool wants_q, Mistake mistake)
      : list(std::move(list)), wants_q(wants_q), mistake(mistake) {
    const auto ring = [](int stages, int expected) {
      return std::vector<Barrier>(static_cast<std::size_t>(stages), {expected});
    };
    full_work = ring(kTile.works(), 1);
    const bool alone = mistake == Mistake::record_given_back_by_consumers_alone;
    empty_work = ring(kTile.works(), kConsumers + (alone ? 0 : 1 + (wants_q ? kConsumers : 0)));
    full_rows = ring(kTile.stages_q, 2);  // Q and its statistics, and dO
    ready_rows = ring(kTile.stages_q, 1);
    empty_q = ring(kTile.stages_q, kConsumers);
    empty_grad_o = ring(kTile.stages_grad_o, kConsumers);
    full_ds = empty_ds = ring(kStagesDs, kConsumers);
    full_dq = empty_dq = ring(kConsumers, 1);
    turn = ring(kConsumers, 2);
    in_work.resize(full_work.size());
    in_q.resize(full_rows.size());
    in_grad_o.resize(empty_grad_o.size());
    in_ds.resize(full_ds.size());
  }

  /// Returns "" if all roles end. Otherwise it says who waits, or who found something wrong.
  std::string run(std::uint64_t seed) {
    std::vector<std::pair<std::string, Role>> roles;
    roles.emplace_back("loader", load());
    roles.emplace_back("guard", guard());
    for (int w = 0; w < kConsumers; ++w) roles.emplace_back(text("consumer ", w), consume(w));
    for (int w = 0; w < kConsumers && wants_q; ++w) roles.emplace_back(text("adder ", w), add(w));
    for (std::uint64_t step = 0;; ++step) {
      std::vector<std::size_t> ready;
      for (std::size_t i = 0; i < roles.size(); ++i) {
        if (roles[i].second.can_go_on()) ready.push_back(i);
      }
      if (ready.empty()) break;
      const auto& [name, next] = roles[ready[random_bits(seed, step) % ready.size()]];
      next.go_on();
      if (next.done() && !next.failure().empty()) return text(name, next.failure());
    }
    std::string waiting;
    for (const auto& [name, role] : roles) {
      if (!role.done()) waiting += text(waiting.empty() ? "" : ", ", name);
    }
    return waiting.empty() ? "" : text("waits for ever: ", waiting);
  }

 private:
  static constexpr sm90::BackwardTiles kTile = sm90::attention_backward_tiles(64);
  static_assert(kTile.goes_on && kTile.turns == sm90::BackwardTurns::exponentials);

  static Barrier& at(std::vector<Barrier>& ring, const At& at) { return ring[static_cast<std::size_t>(at.stage)]; }
  template <class T>
  static T& at(std::vector<T>& ring, int stage) {
    return ring[static_cast<std::size_t>(stage)];
  }
  static Wait is_full(std::vector<Barrier>& ring, const At& position) { return {&at(ring, position), position.parity}; }
  static Wait is_empty(std::vector<Barrier>& ring, const At& position) {
    return {&at(ring, position), position.parity ^ 1};
  }
  int steps(int tile) const { return list[static_cast<std::size_t>(tile)]; }
  int end() const { return static_cast<int>(list.size()); }
  static int content(int tile, int step) { return tile * 1000 + step; }
  static int of_k(int tile) { return 2 * tile; }
  static int of_v(int tile) { return 2 * tile + 1; }
  std::size_t place_of_k(int tile) const {
    return mistake == Mistake::k_and_v_keep_their_places ? 0 : static_cast<std::size_t>(tile % 2);
  }
  static std::string found(int i, int step) { return text(" finds something else in tile ", i, ", step ", step); }

  Role load() {
    At now{kTile.works()}, q{kTile.stages_q}, grad_o{kTile.stages_grad_o};
    for (;; at(empty_work, now).arrive(), now.advance()) {
      co_await is_full(full_work, now);
      const int i = at(in_work, now.stage);
      if (i == end()) co_return "";
      for (int step = 0; step < steps(i); ++step, q.advance(), grad_o.advance()) {
        if (at(in_work, now.stage) != i) co_return found(i, step);
        co_await is_empty(empty_q, q);
        at(in_q, q.stage) = content(i, step);
        at(full_rows, q).arrive();
        co_await is_empty(empty_grad_o, grad_o);
        at(in_grad_o, grad_o.stage) = content(i, step);
        at(full_rows, q).arrive();
      }
    }
  }

  Role guard() {
    At now{kTile.works()}, q{kTile.stages_q};
    for (int i = 0;; ++i, now.advance()) {
      co_await is_empty(empty_work, now);
      at(in_work, now.stage) = i;
      at(full_work, now).arrive();
      if (i == end()) co_return "";
      const std::size_t k = place_of_k(i), v = k ^ 1;
      co_await Wait{&empty_keys[k], i % 2 ^ 1};
      in_keys[k] = of_k(i);
      full_keys[k].arrive();
      for (int step = 0; step < steps(i) || step == 0; ++step) {
        if (step < steps(i)) {
          co_await is_full(full_rows, q);
          if (at(in_q, q.stage) != content(i, step)) co_return found(i, step);
          at(ready_rows, q).arrive();
          q.advance();
        }
        if (step > 0) continue;
        co_await Wait{&full_keys[k], i % 2};
        ready_keys[k].arrive();
        if (mistake != Mistake::v_loaded_without_waiting) co_await Wait{&empty_keys[v], i % 2 ^ 1};
        in_keys[v] = of_v(i);
        full_keys[v].arrive();
        co_await Wait{&full_keys[v], i % 2};
        ready_keys[v].arrive();
      }
    }
  }

  Role consume(int w) {
    const auto own = static_cast<std::size_t>(w);
    At now{kTile.works()}, q{kTile.stages_q}, q_before = q, grad_o{kTile.stages_grad_o}, ds{kStagesDs}, ds_before = ds;
    const bool turn_in_each_tile = mistake == Mistake::first_turn_passed_in_each_tile;
    if (w == 1 && !turn_in_each_tile) turn[0].arrive();
    for (;; at(empty_work, now).arrive(), now.advance()) {
      co_await is_full(full_work, now);
      const int i = at(in_work, now.stage);
      if (i == end()) co_return "";
      const int count = steps(i);
      const std::size_t k = place_of_k(i), v = k ^ 1;
      co_await Wait{&ready_keys[k], now.stage};
      if (w == 1 && turn_in_each_tile) turn[0].arrive();
      for (int step = 0; step <= count; ++step) {  // After the last step there is still a dQ.
        const bool before = step > 0;
        if (step < count) {
          co_await is_full(ready_rows, q);
          if (in_keys[k] != of_k(i) || at(in_q, q.stage) != content(i, step)) co_return found(i, step);  // S
          if (before && at(in_q, q_before.stage) != content(i, step - 1)) co_return found(i, step - 1);
          if (before) at(empty_q, q_before).arrive();
          if (!before) co_await Wait{&ready_keys[v], now.stage};
          const bool early = mistake == Mistake::v_given_back_before_the_last_dp && step + 1 == count;
          if (early) empty_keys[v].arrive();
          Barrier& mine = turn[own];  // It arrives and waits for the other's arrival.
          const int phases = mine.phases;
          mine.arrive();
          co_await Wait{&mine, phases % 2};
          turn[own ^ 1].arrive();
          const bool has_v = in_keys[v] == of_v(i);
          if (!has_v || at(in_grad_o, grad_o.stage) != content(i, step)) co_return found(i, step);  // dP
        }
        if (before) {
          co_await is_full(full_ds, ds_before);
          for (const int half : at(in_ds, ds_before.stage)) {
            if (in_keys[k] != of_k(i) || half != content(i, step - 1)) co_return found(i, step - 1);  // dQ
          }
        }
        if (step < count) {
          if (step + 1 == count && mistake != Mistake::v_given_back_before_the_last_dp) empty_keys[v].arrive();
          co_await is_empty(empty_ds, ds);
          at(in_ds, ds.stage)[own] = content(i, step);
          at(full_ds, ds).arrive();
          if (at(in_grad_o, grad_o.stage) != content(i, step)) co_return found(i, step);  // dV
          at(empty_grad_o, grad_o).arrive();
        } else if (before) {
          if (mistake != Mistake::last_q_kept) at(empty_q, q_before).arrive();
          if (mistake == Mistake::k_given_back_before_the_last_dq) empty_keys[k].arrive();
          co_await Wait{};  // stores dV, and dQ runs
          if (in_keys[k] != of_k(i)) co_return found(i, step - 1);
        }
        if (step == count && (!before || mistake != Mistake::k_given_back_before_the_last_dq)) empty_keys[k].arrive();
        if (count == 0) {
          co_await Wait{&ready_keys[v], now.stage};
          empty_keys[v].arrive();
        }
        if (before) {
          if (step < count || mistake != Mistake::last_ds_kept) at(empty_ds, ds_before).arrive();
          if (wants_q) {
            const bool anew = mistake == Mistake::dq_counted_anew_in_each_tile;
            co_await Wait{&empty_dq[own], anew ? (step - 1) % 2 ^ 1 : ds.stage};
            in_dq[own] = content(i, step - 1);
            full_dq[own].arrive();
          }
        }
        if (step == count) break;
        q_before = q;
        ds_before = ds;
        q.advance();
        grad_o.advance();
        ds.advance();
      }
      co_await Wait{};  // stores dK
      if (at(in_work, now.stage) != i) co_return found(i, count);
    }
  }

  Role add(int w) {
    const auto own = static_cast<std::size_t>(w);
    At now{kTile.works()};
    int parity = 0;
    for (;; at(empty_work, now).arrive(), now.advance()) {
      co_await is_full(full_work, now);
      const int i = at(in_work, now.stage);
      if (i == end()) co_return "";
      for (int step = 0; step < steps(i); ++step, parity ^= 1) {
        co_await Wait{&full_dq[own], parity};
        if (at(in_work, now.stage) != i || in_dq[own] != content(i, step)) co_return found(i, step);
        co_await Wait{};  // its turn; the copy reads the tile
        if (in_dq[own] != content(i, step)) co_return found(i, step);
        empty_dq[own].arrive();
      }
    }
  }

  const std::vector<int> list;
  const bool wants_q;
  const Mistake mistake;
  std::vector<Barrier> full_work, empty_work, full_rows, ready_rows, empty_q, empty_grad_o, full_ds, empty_ds, full_dq,
      empty_dq, turn;
  Barrier full_keys[2]{{1}, {1}}, ready_keys[2]{{1}, {1}}, empty_keys[2]{{kConsumers}, {kConsumers}};
  std::vector<int> in_work, in_q, in_grad_o;
  std::vector<std::array<int, kConsumers>> in_ds;
  std::array<int, kConsumers> in_dq{};
  std::array<int, 2> in_keys{-1, -1};
};

std::string run(const std::vector<int>& list, std::uint64_t seed, Mistake mistake = Mistake::none) {
  for (const bool wants_q : {true, false}) {
    if (const std::string bad = BackwardCta(list, wants_q, mistake).run(seed); !bad.empty()) return bad;
  }
  return "";
}

/// Lists of up to eight tiles of up to nine steps, of which some have none.
std::string check(Mistake mistake, int lists) {
  for (int n = 0; n < lists; ++n) {
    const auto seed = static_cast<std::uint64_t>(n);
    std::vector<int> list(random_bits(seed, 0) % 9);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::uint64_t bits = random_bits(seed, i + 1);
      list[i] = bits % 4 == 0 ? 0 : static_cast<int>(bits / 4 % 9) + 1;
    }
    if (const std::string bad = run(list, seed, mistake); !bad.empty()) return text("list ", n, ": ", bad);
  }
  return "";
}

TEST(BackwardRings, EveryListEnds) { EXPECT_EQ(check(Mistake::none, 3000), ""); }

/// All lists of up to four tiles of 0 to 5 steps: fewer than a ring has stages, as many, and more.
TEST(BackwardRings, EveryShortListEnds) {
  constexpr int kMost = 6;
  for (int count = 0, lists = 1; count <= 4; ++count, lists *= kMost) {
    for (int number = 0; number < lists; ++number) {
      std::vector<int> list;
      for (int i = 0, rest = number; i < count; ++i, rest /= kMost) list.push_back(rest % kMost);
      ASSERT_EQ(run(list, static_cast<std::uint64_t>(number)), "") << count << " tiles, list " << number;
    }
  }
}

/// The model finds each mistake that the kernel could make between two tiles.
TEST(BackwardRings, MistakesAreFound) {
  for (const Mistake mistake : {Mistake::k_given_back_before_the_last_dq, Mistake::v_given_back_before_the_last_dp,
                                Mistake::v_loaded_without_waiting, Mistake::last_ds_kept, Mistake::last_q_kept,
                                Mistake::dq_counted_anew_in_each_tile, Mistake::record_given_back_by_consumers_alone,
                                Mistake::first_turn_passed_in_each_tile}) {
    EXPECT_NE(check(mistake, 3000), "") << static_cast<int>(mistake);
  }
}

/// Then K of the next tile waits for the last dQ.
TEST(BackwardRings, PlacesThatAreKeptAreOnlySlow) { EXPECT_EQ(check(Mistake::k_and_v_keep_their_places, 3000), ""); }

TEST(BackwardRings, WhatIsKeptIsMissedInTheNextTile) {
  EXPECT_EQ(run({1}, 1, Mistake::last_ds_kept), "") << "there is no next tile";
  EXPECT_NE(run({1, 1, 1}, 1, Mistake::last_ds_kept), "");
  EXPECT_EQ(run({2}, 1, Mistake::last_q_kept), "");
  EXPECT_NE(run({2, 2, 2}, 1, Mistake::last_q_kept), "");
  EXPECT_EQ(run({2, 2}, 1, Mistake::dq_counted_anew_in_each_tile), "") << "two steps are a whole turn of the parity";
}

}  // namespace
}  // namespace falchion::testing
