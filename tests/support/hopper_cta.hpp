// tests/support/hopper_cta.hpp: a model of a CTA of Hopper's forward kernel that has only its waits and arrivals
// (docs/design/sm90_forward.md). The scheduler, the producer and the consumers of src/sm90/attention_forward/load.cuh
// and sm90/attention_forward/kernel.cuh are coroutines that wait and arrive in the kernel's order. In each step a
// random one of those that can go on does so, until all have ended or none can go on. The model also checks that a
// reader of a stage finds the expected contents. tests/sm90_rings_test.cpp runs it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/text.hpp"
#include "support/random.hpp"
#include "support/roles.hpp"
#include "tiles/attention_forward/sm90.hpp"

namespace falchion::testing {

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

/// When the producer wants the next record, for which the scheduler waits before it draws another tile. All but the
/// first are tests of the model.
enum class Wants {
  near_the_end,                // when kNear tiles of keys are left to load, and at once where there are fewer
  after_the_loads,             // when the last V of the tile is being loaded
  after_the_last_v,            // when the consumers have given the last V of the tile back
  not_for_tiles_without_keys,  // near the end, but not where there is nothing to load
  at_each_of_the_last_tiles    // near the end, once for each tile of keys that is left
};

struct Order {
  GiveBack give_back = GiveBack::before_it_looks;
  Wants wants = Wants::near_the_end;
};

struct Sizes {
  int consumers, tiles, stages_q, stages;
  bool turns;
  bool early;         // whether a consumer waits for V of the next product before it waits for O of the one that runs
  bool next_k_first;  // K of the next tile of keys comes before V of this one; else the steps follow one another
  int producers = 1;  // 2: kind pages, one of Q and K, and one of V
};
class Cta {
 public:
  Cta(const Sizes& size, std::vector<ModelTile> list, const Order& order = {})
      : size(size), list(std::move(list)), order(order) {
    const auto ring = [](int stages, int expected) {
      return std::vector<Barrier>(static_cast<std::size_t>(stages), {expected});
    };
    full_tile = ring(size.tiles, 1);
    empty_tile = ring(size.tiles, size.consumers + size.producers);
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
    roles.push_back(size.producers == 1 ? produce() : produce_pages(false));
    for (int w = 0; w < size.consumers; ++w) roles.push_back(size.next_k_first ? consume(w) : consume_in_order(w));
    if (size.producers == 2) roles.push_back(produce_pages(true));
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
    if (wanted.phases != end()) return text(wanted.phases, " times wanted a record after one of ", end(), " tiles");
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

  /// This is plan_tiles of the kernel. After the last record there is nothing to wait for.
  Role schedule() {
    At now{size.tiles};
    for (int i = 0; i <= end(); ++i) {
      co_await is_empty(empty_tile, now);
      at(in_tile, now) = i;
      at(full_tile, now).arrive();
      now.advance();
      if (i < end()) co_await Wait{&wanted, i % 2};
    }
    co_return "";
  }

  /// Whether the producer wants the next record when `left` tiles of keys are left to load, of `keys` in all.
  bool wants_next(int left, int keys) const {
    constexpr int kNear = sm90::Tile::kNear;
    const bool near = left == kNear || (left == keys && keys < kNear);
    switch (order.wants) {
      case Wants::near_the_end: return near;
      case Wants::not_for_tiles_without_keys: return near && keys > 0;
      case Wants::at_each_of_the_last_tiles: return left <= kNear;
      case Wants::after_the_loads:
      case Wants::after_the_last_v: return false;
    }
    return false;
  }

  /// This is produce of the kernel.
  Role produce() {
    At k{size.stages}, v{size.stages}, q{size.stages_q};
    for (At now{size.tiles};; at(empty_tile, now).arrive(), now.advance()) {
      co_await is_full(full_tile, now);
      const int i = at(in_tile, now);
      if (i == end()) break;
      const int keys = tile(i).keys;
      if (wants_next(keys, keys)) wanted.arrive();
      if (keys > 0) {
        co_await is_empty(empty_q, q);
        at(in_q, q) = i;
        at(full_q, q).arrive();
        q.advance();
      }
      At last_v = v;
      const int ahead = size.next_k_first ? 1 : 0;
      // K of tile n is followed by V of the tile before it, or by its own V.
      for (int n = 0; keys > 0 && n < keys + ahead; ++n) {
        if (n < keys) {
          if (n > 0 && wants_next(keys - n, keys)) wanted.arrive();
          co_await is_empty(empty_k, k);
          at(in_k, k) = content(i, n);
          at(full_k, k).arrive();
          k.advance();
        }
        if (n >= ahead) {
          co_await is_empty(empty_v, v);
          at(in_v, v) = content(i, n - ahead);
          at(full_v, v).arrive();
          last_v = v;
          v.advance();
        }
      }
      if (order.wants == Wants::after_the_last_v && keys > 0) co_await is_full(empty_v, last_v);
      if (order.wants == Wants::after_the_loads || order.wants == Wants::after_the_last_v) wanted.arrive();
    }
    co_return "";
  }

  /// This is PageProducer of the kernel.
  Role produce_pages(bool of_v) {
    At ring{size.stages}, q{size.stages_q};
    std::vector<Barrier>&empty = of_v ? empty_v : empty_k, &full = of_v ? full_v : full_k;
    std::vector<int>& in = of_v ? in_v : in_k;
    for (At now{size.tiles};; at(empty_tile, now).arrive(), now.advance()) {
      co_await is_full(full_tile, now);
      const int i = at(in_tile, now);
      if (i == end()) break;
      const int keys = tile(i).keys;
      if (!of_v && wants_next(keys, keys)) wanted.arrive();
      if (!of_v && keys > 0) {
        co_await is_empty(empty_q, q);
        at(in_q, q) = i;
        at(full_q, q).arrive();
        q.advance();
      }
      for (int n = 0; n < keys; ++n) {
        if (!of_v && n > 0 && wants_next(keys - n, keys)) wanted.arrive();
        co_await is_empty(empty, ring);
        at(in, ring) = content(i, n);
        at(full, ring).arrive();
        ring.advance();
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
    const bool turns = size.turns;
    if (turns && w == size.consumers - 1) turn[next].arrive();

    int i = -1, stage_v = 0;
    bool holds = false;  // Whether the consumer holds the record of tile i while it looks for the next tile.
    At held = now;
    for (bool first = true;; first = false) {
      const int before = i;
      if (!first) {  // At the end of walk() the last O += P V has been started.
        held = now;
        now.advance();
        holds = order.give_back == GiveBack::after_it_stores;
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
        if (size.early) co_await is_full(full_v, v);
        empty_v[static_cast<std::size_t>(stage_v)].arrive();  // This is wait_o.
        if (!size.early) co_await is_full(full_v, v);
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
      const int skipped = tile(i).skipped[static_cast<std::size_t>(w)];
      for (int n = 0; n < tile(i).keys; ++n) {
        if (n == skipped) co_await is_full(full_q, q);
        co_await is_full(full_k, k);
        wrong += at(in_k, k) != content(i, n);
        if (n >= skipped) give(empty_k, &k);  // K of a tile that is passed over is held until V has come.
        co_await is_full(full_v, v);
        wrong += at(in_v, v) != content(i, n);
        if (n < skipped) give(empty_k, &k);
        give(empty_v, &v);
      }
      wrong += at(in_q, q) != i;
      give(empty_q, &q);
    }
    co_return wrong == 0 ? "" : text("consumer ", w, " found ", wrong, " stages with something else");
  }

  const Sizes size;
  const std::vector<ModelTile> list;
  const Order order;
  std::vector<Barrier> full_tile, empty_tile, full_q, empty_q, full_k, empty_k, full_v, empty_v, turn;
  Barrier meeting, wanted;
  std::vector<int> in_tile, in_q, in_k, in_v;
  std::size_t stored = 0;
};

}  // namespace falchion::testing
