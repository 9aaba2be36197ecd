// tests/sm80_backward_order_test.cpp: the blocks of sm80's backward kernel own each tile of keys once. Those of a head
// own its tiles in order, because a CTA waits for those with smaller numbers alone, and several heads begin together.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "sm80/attention_backward/once/order.hpp"

namespace falchion::sm80 {
namespace {

TEST(Sm80BackwardOrder, EachTileOnceAndThoseOfAHeadInOrder) {
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

TEST(Sm80BackwardOrder, NeighboursBelongToOtherHeads) {
  for (int block = 0; block < 8 * 16; block += 4) {
    std::set<int> heads;
    for (int i = 0; i < 4; ++i) heads.insert(tile_of_block(block + i, 8, 16, 4) / 8);
    EXPECT_EQ(heads.size(), 4U);
  }
  EXPECT_EQ(tile_of_block(5, 8, 16, 1), 5);
}

}  // namespace
}  // namespace falchion::sm80
