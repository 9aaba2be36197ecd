// tests/tile_counter_test.cpp: tests the counter from which Hopper's CTAs draw their tiles
// (src/gpu/blocks/tile_counter.cuh). It runs that very code on the host, on CTAs that take turns at random
// (support/host_grid.hpp). Whatever the workspace holds before a launch, and in whatever order the CTAs run, each tile
// must be drawn once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/text.hpp"
#include "support/host_grid.hpp"
#include "support/random.hpp"

#include "gpu/blocks/tile_counter.cuh"

namespace falchion::testing {
namespace {

using Start = HostGrid::Start;

/// A launch: the numbers of CTAs and tiles, its launch number, and how many draws the counter expects. The kernel
/// passes the number of tiles.
struct Launch {
  std::uint32_t ctas, tiles;
  std::uint64_t number = 0xABCDEF;
  std::uint32_t draws = tiles;
  Start start = Start::together;
};
std::string name(const Launch& x) {
  return text(x.ctas, " CTAs, ", x.tiles, " tiles", x.start == Start::together ? "" : ", the first CTA late");
}

/// Runs a launch whose CTAs draw tiles like Places of src/sm90/attention_forward/load.cuh: the first tile of a CTA is
/// its own number. Returns "" or the error. A CTA must not end while there are undrawn tiles, because the others would
/// have to do them alone.
template <class Draw = TileDraw>
std::string run(const Launch& launch, std::uint64_t seed, TileCounter* counter) {
  std::vector<int> times(launch.tiles);
  std::string early;
  const bool ended = HostGrid::run(static_cast<int>(launch.ctas), seed, launch.start, [&] {
    Draw draw(counter, launch.number, launch.draws);
    draw.open();
    for (std::uint32_t place = blockIdx.x; place < launch.tiles; place = launch.ctas + draw.draw()) ++times[place];
    const auto left = std::count(times.begin() + launch.ctas, times.end(), 0);
    if (left > 0) early = text("a CTA ends while ", left, " tiles are left");
  });
  if (!ended) return "a CTA waits for ever";
  for (std::size_t tile = 0; tile < times.size(); ++tile) {
    if (times[tile] != 1) return text("tile ", tile, " is drawn ", times[tile], " times");
  }
  return early;
}

/// What a workspace may hold before anything has been launched.
TileCounter garbage(std::uint64_t seed) {
  return {random_bits(seed, 1), static_cast<std::uint32_t>(random_bits(seed, 2))};
}

/// Calls f for each number of CTAs up to 6 and of tiles up to 13, with the first CTA in time and late. A launch has no
/// more CTAs than tiles.
template <class F>
void for_each_launch(const F& f) {
  for (std::uint32_t tiles = 1; tiles <= 13; ++tiles) {
    for (std::uint32_t ctas = 1; ctas <= std::min(tiles, 6U); ++ctas) {
      for (const Start start : {Start::together, Start::first_cta_late})
        f(Launch{.ctas = ctas, .tiles = tiles, .draws = tiles, .start = start});
    }
  }
}
constexpr std::uint64_t kSeeds = 20;

TEST(TileCounter, EachTileOnceFromAnyWorkspace) {
  for_each_launch([](const Launch& launch) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      TileCounter counter = garbage(seed);
      ASSERT_EQ(run(launch, seed, &counter), "") << name(launch);
    }
  });
}

/// A CUDA graph runs each time with the number that its launch had when it was captured, and finds in the workspace
/// what its last run left there.
TEST(TileCounter, AGraphRunsAgainWithTheSameNumber) {
  for_each_launch([](const Launch& launch) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      TileCounter counter = garbage(seed);
      for (std::uint64_t again = 0; again < 3; ++again)
        ASSERT_EQ(run(launch, seed * 3 + again, &counter), "") << name(launch) << ", run " << again;
    }
  });
}

/// Plans of several sizes may use one workspace, one after another.
TEST(TileCounter, LaunchesShareAWorkspace) {
  TileCounter counter = garbage(7);
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Launch launch{.ctas = 1 + static_cast<std::uint32_t>(random_bits(seed, 1) % 6), .tiles = 0};
    launch.tiles = launch.ctas + static_cast<std::uint32_t>(random_bits(seed, 2) % 9);
    launch.draws = launch.tiles;
    launch.number = 1 + random_bits(seed, 3) % 2;  // each of two graphs runs again and again
    ASSERT_EQ(run(launch, seed, &counter), "") << name(launch) << ", launch " << seed;
  }
}

// ---- The test can fail ----------------------------------------------------------------------------------------------

/// Returns how many of 200 runs of a graph go wrong, each of which follows one run that went well.
int wrong_second_runs(const Launch& launch) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    TileCounter counter = garbage(seed);
    EXPECT_EQ(run(launch, 2 * seed, &counter), "") << name(launch);
    if (!run(launch, 2 * seed + 1, &counter).empty()) ++wrong;
  }
  return wrong;
}

/// A counter that expects more draws than there are never forgets the launch. In the second run of a graph CTAs then
/// draw before the first CTA has set the counter to 0. They find it past the last tile and end after one tile each. The
/// others do the rest, so the results are right, but where the first CTA is the last to begin it works alone.
TEST(TileCounter, WithoutForgettingAGraphLeavesTheTilesToFewCtas) {
  constexpr std::uint32_t kNever = ~0U;
  EXPECT_EQ(wrong_second_runs({.ctas = 4, .tiles = 12, .draws = 12, .start = Start::first_cta_late}), 0);
  EXPECT_EQ(wrong_second_runs({.ctas = 4, .tiles = 12, .draws = kNever, .start = Start::first_cta_late}), 200);
  EXPECT_GT(wrong_second_runs({.ctas = 4, .tiles = 12, .draws = kNever}), 0);
  TileCounter counter = garbage(1);
  const Launch late{.ctas = 4, .tiles = 12, .draws = kNever, .start = Start::first_cta_late};
  EXPECT_EQ(run(late, 1, &counter), "");
  EXPECT_EQ(run(late, 2, &counter), "a CTA ends while 8 tiles are left");
  EXPECT_EQ(wrong_second_runs({.ctas = 1, .tiles = 12, .draws = kNever}), 0) << "the only CTA is never late";
}

/// A counter that forgets the launch before the last draw leaves CTAs that have not drawn yet waiting for ever.
TEST(TileCounter, ForgettingTooEarlyHangs) {
  int hangs = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    TileCounter counter = garbage(seed);
    if (run({.ctas = 4, .tiles = 5, .draws = 1}, seed, &counter) == "a CTA waits for ever") ++hangs;
  }
  EXPECT_GT(hangs, 0);
}

/// This one says for which launch the counter is before the others are sure to see that it is 0.
struct RelaxedDraw : TileDraw {
  RelaxedDraw(TileCounter* counter, std::uint64_t launch, std::uint32_t draws)
      : TileDraw(counter, launch, draws), counter(counter), launch(launch) {}
  void open() const {
    if (blockIdx.x != 0) return;
    using cuda::atomic_ref, cuda::thread_scope_device, cuda::memory_order_relaxed;
    atomic_ref<std::uint32_t, thread_scope_device>(counter->next).store(0, memory_order_relaxed);
    atomic_ref<std::uint64_t, thread_scope_device>(counter->launch).store(launch, memory_order_relaxed);
  }
  TileCounter* counter;
  std::uint64_t launch;
};
TEST(TileCounter, AStoreThatMayComeTooEarlyIsFound) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    TileCounter counter = garbage(seed);
    if (!run<RelaxedDraw>({.ctas = 4, .tiles = 12, .draws = 12}, seed, &counter).empty()) ++wrong;
  }
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace falchion::testing
