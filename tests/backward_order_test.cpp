// tests/backward_order_test.cpp: the blocks of the backward kernels that add to sums of grad_q own each tile of keys
// once. Those of a head own its tiles in order, because a CTA waits for those with smaller numbers alone, and several
// heads begin together.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <vector>

#include "gpu/attention_backward/order.hpp"

namespace falchion::gpu {
namespace {

TEST(BackwardOrder, EachTileOnceAndThoseOfAHeadInOrder) {
  for (const int tiles : {1, 2, 7, 128}) {
    for (const int heads : {1, 2, 5, 16, 33}) {
      for (const int together : {1, 2, 3, 16, 100}) {
        std::vector<int> next(static_cast<std::size_t>(heads));
        for (int block = 0; block < tiles * heads; ++block) {
          const int x = tile_of_block(block, tiles, heads, together);
          ASSERT_LT(x, tiles * heads);
          EXPECT_EQ(x % tiles, next[static_cast<std::size_t>(x / tiles)]++) << tiles << " " << heads << " " << together;
        }
      }
    }
  }
}

TEST(BackwardOrder, NeighboursBelongToOtherHeads) {
  for (int block = 0; block < 8 * 16; block += 4) {
    std::set<int> heads;
    for (int i = 0; i < 4; ++i) heads.insert(tile_of_block(block + i, 8, 16, 4) / 8);
    EXPECT_EQ(heads.size(), 4U);
  }
  EXPECT_EQ(tile_of_block(5, 8, 16, 1), 5);
}

TEST(BackwardOrder, SectionsOfHeadsFillTheDeviceAndAreEquallyLarge) {
  EXPECT_EQ(heads_together(64, 132, 8), 16);
  EXPECT_EQ(heads_together(64, 132, 4), 32);  // and not 33 and 31
  EXPECT_EQ(heads_together(17, 132, 8), 9);   // and not 16 and 1
  EXPECT_EQ(heads_together(3, 132, 8), 3);
  EXPECT_EQ(heads_together(5, 4, 8), 1);
  EXPECT_EQ(heads_together(0, 132, 8), 1);
}

/// Each SM takes the next tile when it has done one. A tile of keys takes as many steps as tiles of rows see it.
double busy(int tiles, int heads, int sms, int deep) {
  const int together = heads_together(heads, sms, deep);
  std::priority_queue<int, std::vector<int>, std::greater<>> free_at;
  for (int i = 0; i < sms; ++i) free_at.push(0);
  int all = 0, end = 0;
  for (int block = 0; block < tiles * heads; ++block) {
    const int steps = tiles - tile_of_block(block, tiles, heads, together) % tiles;
    const int done = free_at.top() + steps;
    free_at.pop();
    free_at.push(done);
    all += steps;
    end = std::max(end, done);
  }
  return static_cast<double>(all) / sms / end;
}

/// 16k tokens and 16 heads, or 4 heads of keys, whose tiles take longer. With head after head, as in the first row, the
/// last head's long tiles would begin when others are done.
TEST(BackwardOrder, TheEndOfACausalGridIsShort) {
  EXPECT_LT(busy(32, 64, 132, 132), 0.97);
  EXPECT_GT(busy(32, 64, 132, 8), 0.98);
  EXPECT_GT(busy(128, 16, 132, 8), 0.98);
  EXPECT_GT(busy(8, 256, 132, 8), 0.98);
  EXPECT_GT(busy(32, 16, 132, 8), 0.98);
}

}  // namespace
}  // namespace falchion::gpu
