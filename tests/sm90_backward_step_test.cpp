// The walk of a CTA of Hopper's backward kernels (src/sm90/attention_backward/step.hpp), run on the host.
#include "sm90/attention_backward/step.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace falchion::sm90 {
namespace {

struct Tile {
  int h, heads, begin, end;
};

std::vector<std::pair<int, int>> walk(const Tile& tile, int first) {
  std::vector<std::pair<int, int>> visited;
  for (BackwardStep step(tile, first); step.there(); step.advance()) visited.emplace_back(step.head, step.tile);
  return visited;
}

TEST(BackwardStep, VisitsEachTileOnceInAllHeadsBeforeTheNext) {
  for (const Tile& tile : {Tile{0, 1, 0, 1}, Tile{6, 3, 0, 7}, Tile{4, 2, 5, 9}, Tile{0, 4, 2, 3}}) {
    for (int number = 0; number < 9; ++number) {
      for (const bool any_order : {false, true}) {
        const auto visited = walk(tile, first_tile(tile, number, any_order));
        const int count = tile.end - tile.begin;
        ASSERT_EQ(visited.size(), static_cast<std::size_t>(count * tile.heads));
        std::set<std::pair<int, int>> different;
        for (std::size_t i = 0; i < visited.size(); ++i) {
          EXPECT_EQ(visited[i].first, tile.h + static_cast<int>(i) % tile.heads);
          EXPECT_EQ(visited[i].second, visited[i - i % static_cast<std::size_t>(tile.heads)].second);
          EXPECT_TRUE(tile.begin <= visited[i].second && visited[i].second < tile.end) << visited[i].second;
          different.insert(visited[i]);
        }
        EXPECT_EQ(different.size(), visited.size());
      }
    }
  }
}

TEST(BackwardStep, WithAFixedOrderEveryCtaBeginsWithTheLastTile) {
  for (int number = 0; number < 5; ++number) {
    const Tile tile{0, 1, number, 8};
    EXPECT_EQ(walk(tile, first_tile(tile, number, false)).front().second, 7);
  }
}

TEST(BackwardStep, WithAnyOrderTheCtasOfAHeadVisitDifferentTilesAtATime) {
  const int tiles = 16, ctas = tiles / 2;
  std::map<int, std::set<int>> at_step;  // which tiles are visited at the same time
  for (int number = 0; number < ctas; ++number) {
    const Tile tile{0, 1, 0, tiles};
    const auto visited = walk(tile, first_tile(tile, number, true));
    for (int step = 0; step < tiles; ++step) at_step[step].insert(visited[static_cast<std::size_t>(step)].second);
  }
  for (const auto& [step, visited] : at_step) EXPECT_EQ(visited.size(), static_cast<std::size_t>(ctas)) << step;
}

TEST(BackwardStep, TheCtasOfAGroupOfHeadsKeepTogether) {
  for (int number = 0; number < 5; ++number) {
    const Tile tile{4, 4, 0, 16};
    EXPECT_EQ(walk(tile, first_tile(tile, number, true)).front(), std::pair(4, 15));
  }
}

TEST(BackwardStep, UnderACausalBandFewTilesOfAHeadStartAtATime) {
  gpu::AttentionBackwardArgs a;
  a.key_tiles = 32;
  EXPECT_EQ(tiles_at_once(a), 32);
  a.right = 0;
  EXPECT_EQ(tiles_at_once(a), 8);
  a.any_order = true;
  EXPECT_EQ(tiles_at_once(a), 32);
}

/// Consumers above head dim 128 know no head: they count tiles down and begin with the last one again.
TEST(BackwardStep, AboveHeadDim128HeadsFollowOneAnother) {
  for (const Tile& tile : {Tile{0, 1, 0, 1}, Tile{6, 3, 0, 7}, Tile{4, 2, 5, 9}, Tile{0, 4, 2, 3}}) {
    std::vector<std::pair<int, int>> visited, expected;
    for (WideStep step(tile); step.there(); step.advance()) visited.emplace_back(step.head, step.tile);
    for (int head = tile.h; head < tile.h + tile.heads; ++head)
      for (int x = tile.end - 1; x >= tile.begin; --x) expected.emplace_back(head, x);
    EXPECT_EQ(visited, expected);
  }
}

TEST(BackwardStep, ThereIsNoStepWhereNoRowSeesTheKeys) {
  const Tile tile{0, 4, 0, 0};
  EXPECT_FALSE(WideStep(tile).there());
  EXPECT_TRUE(walk(tile, first_tile(tile, 3, true)).empty());
  EXPECT_TRUE(walk(tile, first_tile(tile, 3, false)).empty());
}

}  // namespace
}  // namespace falchion::sm90
