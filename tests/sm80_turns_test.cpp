// tests/sm80_turns_test.cpp: plays the turns by which the CTAs of sm80's kernel of kind once and of Hopper's kernel
// of kind plain add to grad_q, on the host, with the kernels' own tiles, steps and numbers. No CTA may wait for one
// that never comes, whatever the lengths on the device say. With lengths that are right the order of the sums is fixed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpu/attention_backward/order.hpp"
#include "plan/text.hpp"
#include "sm80/attention_backward/once/order.hpp"
#include "sm90/attention_backward/step.hpp"
#include "support/host_warp.hpp"
#include "tiles/attention_backward/sm80.hpp"
#include "tiles/attention_backward/sm90.hpp"

#include "gpu/attention_backward/tile.cuh"  // This comes after the warp of the host.

namespace falchion::gpu {
namespace {

/// What is different in sm80's kernel: the last tile of keys adds first, and the walk over the rows.
template <int kD>
struct OnSm80 {
  static constexpr sm80::BackwardTiles kTiles = sm80::attention_backward_tiles(sm80::BackwardKind::once, kD);
  static constexpr int kRows = kTiles.visited, kKeys = kTiles.own;
  static constexpr bool kLastTileFirst = true;

  static int adders_before(const AttentionBackwardArgs& a, const BackwardTile& t, int tile) {
    const std::int64_t past = std::min(tile * kRows + kRows, t.q.length) + t.mask.shift + t.mask.right;
    const int keys = sm80::keys_with_owner(t.own0, t.k.length, a.key_tiles - t.tile, kKeys);
    return sm80::adders_before(t.own0, past, keys, kKeys);
  }
  template <class Visit>
  static void walk(const BackwardTile& t, Visit visit) {
    for (int head = t.h; head < t.h + t.heads; ++head) {
      for (int tile = t.begin; tile < t.end; ++tile) visit(head, tile);
    }
  }
};

/// The same of Hopper's.
template <int kD>
struct OnSm90 {
  static constexpr sm90::BackwardTiles kTiles = sm90::attention_backward_tiles(kD);
  static constexpr int kRows = kTiles.rows, kKeys = kTiles.keys;
  static constexpr bool kLastTileFirst = false;

  static int adders_before(const AttentionBackwardArgs&, const BackwardTile& t, int tile) {
    return sm90::adders_before(t.own0, std::int64_t{tile} * kRows + t.mask.shift - t.mask.left, kKeys);
  }
  template <class Visit>
  static void walk(const BackwardTile& t, Visit visit) {
    for (sm90::BackwardStep step(t, sm90::first_tile(t, t.own0 / kKeys, false)); step.there(); step.advance())
      visit(step.head, step.tile);
  }
};

/// Runs the CTAs of a launch one after another, like a device with room for a single one. If that ends, so does any run
/// in which CTAs start in the order of their numbers: no CTA ever waits for one that has not started.
template <class Kernel>
class Turns {
 public:
  Turns(const AttentionBackwardArgs& args, int together) : a_(args), together_(together) {
    a_.row_tiles = backward_tiles(a_, a_.s_q, a_.total_q, Kernel::kRows);
    a_.key_tiles = backward_tiles(a_, a_.s_k, a_.total_k, Kernel::kKeys);
    const BackwardLayout layout = BackwardLayout::of(a_);
    turns_.assign(static_cast<std::size_t>(layout.heads(a_) * layout.rows / 64), 0);
  }

  /// Returns "" or the first thing that is wrong. Where sequences overlap they share turns, of which there may then be
  /// more than a CTA waits for. Otherwise there may not, since then the order of the sums would not be fixed.
  std::string run(bool overlap) {
    const int blocks = static_cast<int>(backward_blocks(a_, Owner::keys, 1));
    if (blocks == 0) return "";  // There is no launch.
    const BackwardDivisors by(a_, Owner::keys, 1);
    std::string bad;
    for (int block = 0; block < blocks && bad.empty(); ++block) {
      const BackwardTile t = tile_of(by, block, blocks);
      if (t.own0 >= t.k.length) continue;
      Kernel::walk(t, [&](int head, int tile) {
        if (bad.empty()) bad = add(t, head, tile, overlap);
      });
      if (!bad.empty()) bad = text("block ", block, ", ", bad);
    }
    return bad;
  }

  /// Runs CTAs that go on to the next tile of keys, on a device with room for `room` of them, which start in the order
  /// of their numbers. A CTA takes its next block before it is done with a tile. Which CTA does something next is
  /// random. drawn: a counter deals all blocks; else each CTA begins with the block that has its own number.
  std::string run_on(int ctas, int room, bool drawn, unsigned seed) {
    const int blocks = static_cast<int>(backward_blocks(a_, Owner::keys, 1));
    if (blocks == 0) return "";
    const BackwardDivisors by(a_, Owner::keys, 1);
    std::mt19937 random(seed);
    std::deque<Cta> running;
    std::vector<int> times(static_cast<std::size_t>(blocks));
    int started = 0, counter = drawn ? 0 : ctas;
    while (started < ctas || !running.empty()) {
      while (started < ctas && static_cast<int>(running.size()) < room) running.push_back({.number = started++});
      std::vector<std::size_t> ready;
      for (std::size_t i = 0; i < running.size(); ++i) {
        const std::deque<Work>& works = running[i].works;
        const bool blocked = !works.empty() && !works.front().steps.empty() && !turn_has_come(works.front());
        if (!blocked || draws(running[i])) ready.push_back(i);
      }
      if (ready.empty()) return text("block ", running.front().works.front().block, " waits for ever");
      const std::size_t next = ready[random() % ready.size()];
      Cta& cta = running[next];
      if (draws(cta)) {
        const int block = drawn || cta.has_drawn ? counter++ : cta.number;
        cta.has_drawn = true;
        cta.no_more = block >= blocks;
        if (cta.no_more) continue;
        ++times[static_cast<std::size_t>(block)];
        Work work{block, tile_of(by, block, blocks), {}};
        Kernel::walk(work.t, [&](int head, int tile) { work.steps.emplace_back(head, tile); });
        if (work.t.own0 < work.t.k.length) cta.works.push_back(work);
      } else if (cta.works.empty()) {
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(next));
      } else if (Work& work = cta.works.front(); work.steps.empty()) {
        cta.works.pop_front();
      } else {
        const auto [head, tile] = work.steps.front();
        if (const std::string bad = add(work.t, head, tile, false); !bad.empty())
          return text("block ", work.block, ", ", bad);
        work.steps.pop_front();
      }
    }
    for (int block = 0; block < blocks; ++block) {
      if (times[static_cast<std::size_t>(block)] != 1) return text("block ", block, " is not taken once");
    }
    return "";
  }

 private:
  /// A tile of keys of a CTA, and the steps that are left.
  struct Work {
    int block;
    BackwardTile t;
    std::deque<std::pair<int, int>> steps;
  };
  struct Cta {
    int number;
    bool has_drawn = false, no_more = false;
    std::deque<Work> works{};  // this one, and the next
  };
  static bool draws(const Cta& cta) {
    if (cta.no_more) return false;
    return cta.works.empty() || (cta.works.size() == 1 && cta.works.front().steps.size() <= 1);
  }
  bool turn_has_come(const Work& work) const {
    const auto [head, tile] = work.steps.front();
    const std::int64_t row =
        BackwardLayout::of(a_).first_row(a_, work.t.b, head, work.t.q.begin) + tile * Kernel::kRows;
    return turns_[static_cast<std::size_t>(row / 64)] >= Kernel::adders_before(a_, work.t, tile);
  }
  /// Packed tiles are found by a warp.
  BackwardTile tile_of(const BackwardDivisors& by, int block, int blocks) const {
    const int tiles = by.tiles.divisor, x = tile_of_block(block, tiles, blocks / tiles, together_);
    BackwardTile tile{};
    const auto find = [&] {
      tile = BackwardTile::of<Owner::keys, Kernel::kKeys, Kernel::kRows>(a_, by, x, Kernel::kLastTileFirst);
    };
    if (!a_.packed) {
      find();
    } else {
      EXPECT_TRUE(testing::HostWarp::run(find));
    }
    return tile;
  }
  std::string add(const BackwardTile& t, int head, int tile, bool overlap) {
    const BackwardLayout layout = BackwardLayout::of(a_);
    const std::int64_t row = layout.first_row(a_, t.b, head, t.q.begin) + tile * Kernel::kRows;
    const std::string where = text("keys from ", t.own0, " on, head ", head, ", rows from ", row, " on: ");
    if (row < 0 || row + Kernel::kRows > layout.heads(a_) * layout.rows) return where + "outside of the workspace";
    const int wanted = Kernel::adders_before(a_, t, tile);
    int& passed = turns_[static_cast<std::size_t>(row / 64)];
    if (wanted < 0) return text(where, "waits for ", wanted);
    if (passed < wanted) return text(where, "waits for ever for ", wanted, " CTAs, of which ", passed, " come");
    if (passed > wanted && !overlap) return text(where, passed, " have added, but it waits for ", wanted);
    ++passed;
    return "";
  }

  AttentionBackwardArgs a_;
  int together_;
  std::vector<int> turns_;  // of each 64 rows in the workspace
};

AttentionBackwardArgs problem(std::int64_t b, std::int64_t s_q, std::int64_t s_k) {
  AttentionBackwardArgs a;
  a.b = b;
  a.s_q = s_q;
  a.s_k = s_k;
  a.h_q = 4;
  a.h_k = 2;
  return a;
}
AttentionBackwardArgs packed(const std::vector<std::int32_t>& cu_q, const std::vector<std::int32_t>& cu_k,
                             std::int64_t total_q, std::int64_t total_k) {
  AttentionBackwardArgs a = problem(static_cast<std::int64_t>(cu_q.size()) - 1, 300, 300);
  a.packed = true;
  a.cu_q = cu_q.data();
  a.cu_k = cu_k.data();
  a.total_q = total_q;
  a.total_k = total_k;
  return a;
}

/// Every band, tile and order of blocks.
void expect_an_end(AttentionBackwardArgs a, bool overlap) {
  for (const auto& [left, right] : {std::pair{-1, -1}, {-1, 0}, {100, 20}, {0, -1}, {300, 300}}) {
    for (const std::int64_t diagonal : {-9999, 0, 150, -220}) {  // -9999: bottom right
      a.left = left;
      a.right = right;
      a.bottom_right = diagonal == -9999;
      a.diagonal = a.bottom_right ? 0 : diagonal;
      for (const int together : {1, 2}) {
        const std::string band = text("band ", left, " ", right, " at ", diagonal, " together ", together);
        ASSERT_EQ(Turns<OnSm80<64>>(a, together).run(overlap), "") << "sm80, d 64 " << band;
        ASSERT_EQ(Turns<OnSm80<128>>(a, together).run(overlap), "") << "sm80, d 128 " << band;
        ASSERT_EQ(Turns<OnSm90<64>>(a, together).run(overlap), "") << "sm90, d 64 " << band;
        ASSERT_EQ(Turns<OnSm90<128>>(a, together).run(overlap), "") << "sm90, d 128 " << band;
      }
    }
  }
}

TEST(BackwardTurns, ComeInAFixedOrder) {
  for (const std::int64_t s_q : {1, 64, 129, 700}) {
    for (const std::int64_t s_k : {0, 1, 128, 129, 650}) expect_an_end(problem(2, s_q, s_k), false);
  }
  AttentionBackwardArgs used = problem(5, 300, 500);
  const std::int32_t used_q[] = {0, 5, 300, 999, -3}, used_k[] = {300, 0, 129, 999, 1}, first_k[] = {1, 2, 128, -5, 7};
  used.used_q = used_q;
  used.used_k = used_k;
  used.first_k = first_k;
  expect_an_end(used, false);
  expect_an_end(packed({0, 300, 300, 301, 650}, {0, 1, 300, 428, 650}, 650, 650), false);
}

/// CTAs that go on wait only for tiles that CTAs on the device have drawn or done, however few of them there is room
/// for.
TEST(BackwardTurns, ComeWhereCtasGoOn) {
  static_assert(OnSm90<64>::kTiles.goes_on);
  const std::vector<std::int32_t> cu_q{0, 300, 300, 301, 650}, cu_k{0, 1, 300, 428, 650};
  for (AttentionBackwardArgs a :
       {problem(2, 700, 650), problem(1, 1, 900), problem(3, 0, 300), packed(cu_q, cu_k, 650, 650)}) {
    for (const int right : {-1, 0}) {
      a.right = right;
      for (const int together : {1, 3}) {
        for (const int ctas : {1, 2, 5, 13}) {
          for (const int room : {1, 2, ctas}) {
            const std::string launch = text(ctas, " CTAs, room for ", room, ", right ", right, ", together ", together);
            for (unsigned seed = 0; seed < 4; ++seed)
              ASSERT_EQ(Turns<OnSm90<64>>(a, together).run_on(ctas, room, true, seed), "") << launch;
          }
        }
      }
    }
  }
}

/// If each CTA began with the block of its own number, one that goes on could wait for one that finds no room. Where
/// each has one block, none goes on.
TEST(BackwardTurns, DoNotComeWhereCtasBeginWithTheirNumbersAndGoOn) {
  const AttentionBackwardArgs a = problem(2, 700, 650);
  const int blocks = 2 * 2 * 6;
  for (const int room : {1, 2, blocks}) EXPECT_EQ(Turns<OnSm90<64>>(a, 1).run_on(blocks, room, false, 1), "") << room;
  EXPECT_EQ(Turns<OnSm90<64>>(a, 1).run_on(5, 5, false, 1), "");
  EXPECT_NE(Turns<OnSm90<64>>(a, 1).run_on(5, 1, false, 1), "");
}

/// Sequences that overlap have more tiles of keys than there are CTAs. Those of the last tiles are missing then, for
/// which the others would wait on sm80.
TEST(BackwardTurns, ComeToAnEndWhateverTheLengthsSay) {
  const std::vector<std::int32_t> right{0, 300, 500, 600, 650};
  for (const std::vector<std::int32_t>& broken : {std::vector<std::int32_t>{0, 650, 0, 650, 650},
                                                  {-5, 1 << 30, 7, -(1 << 30), 1 << 30},
                                                  {600, 500, 400, 300, 200},
                                                  {0, 650, 1, 640, 2}}) {
    expect_an_end(packed(right, broken, 650, 650), true);
    expect_an_end(packed(broken, right, 650, 650), true);
    expect_an_end(packed(broken, broken, 650, 650), true);
  }
}
TEST(BackwardTurns, ComeToAnEndWithRandomLengths) {
  std::mt19937 random(3);
  const auto below = [&](unsigned limit) { return static_cast<std::int32_t>(random() % limit); };
  for (int round = 0; round < 10; ++round) {
    std::vector<std::int32_t> cu_q(5), cu_k(5), used(4), first(4);
    for (auto* x : {&cu_q, &cu_k, &used, &first}) {
      for (std::int32_t& value : *x) value = below(8) == 0 ? static_cast<std::int32_t>(random()) : below(900) - 50;
    }
    for (std::size_t i = 0; i < cu_k.size(); i += 2) cu_k[i] = below(60);  // Each second sequence is long.
    AttentionBackwardArgs a = packed(cu_q, cu_k, 800, 700);
    expect_an_end(a, true);
    a.used_q = a.used_k = used.data();
    a.first_k = first.data();
    expect_an_end(a, true);
  }
}

}  // namespace
}  // namespace falchion::gpu
