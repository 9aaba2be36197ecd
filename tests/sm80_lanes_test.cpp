// tests/sm80_lanes_test.cpp: walks through the tiles of the sm80 backward kernel that computes each pair once, as its
// ldmatrix, stmatrix and single stores do. Each lane must find its eight elements, without bank conflicts.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "gpu/blocks/lane_blocks.hpp"
#include "support/banks.hpp"

namespace falchion::testing {
namespace {

using gpu::LaneBlocks, gpu::swizzled;

/// Lines of the tiles of this kernel: keys 128; rows 64 and 128.
template <class F>
void for_each_tile(F f) {
  f(std::integral_constant<int, 64>{});
  f(std::integral_constant<int, 128>{});
}
/// Calls f(line, column) for the first element of each block of a tile of two boxes.
template <class F>
void for_each_block(int lines, F f) {
  for (int line = 0; line < lines; line += 16)
    for (int column = 0; column < 128; column += 16) f(line, column);
}

/// ldmatrix has eight lanes in a phase, and lane l gives the address of line l % 8 of matrix l / 8.
TEST(Sm80LaneBlocks, EachLaneFindsItsElements) {
  for_each_tile([](auto lines) {
    constexpr int kLines = decltype(lines)::value;
    for_each_block(kLines, [](int line, int column) {
      for (int lane = 0; lane < 32; ++lane) {
        const int matrix = lane / 8, in_matrix = lane % 8;
        const LaneBlocks down{LaneBlocks::down_first(lane)}, across{LaneBlocks::across_first(lane)};
        EXPECT_EQ(LaneBlocks::across_of(LaneBlocks::down_first(lane)), LaneBlocks::across_first(lane));
        EXPECT_EQ(down.at<kLines>(line, column),
                  2 * swizzled<kLines>(line + matrix % 2 * 8 + in_matrix, column + matrix / 2 * 8));
        EXPECT_EQ(across.at<kLines>(line, column),
                  2 * swizzled<kLines>(line + matrix / 2 * 8 + in_matrix, column + matrix % 2 * 8));
      }
    });
  });
}

/// A warp's first block may lie anywhere in a tile, as long as what it adds to that stays in the same box or begins in
/// the box's first column.
TEST(Sm80LaneBlocks, BlocksAreCountedFromAnyOther) {
  constexpr int kLines = 128;
  const LaneBlocks first{LaneBlocks::down_first(5)};
  for (int column = 0; column < 64; column += 32) {
    const LaneBlocks from = first.from<kLines>(48, 64 + column);
    for (int line = 0; line < 64; line += 16)
      for (int more = 0; more < 32; more += 16)
        EXPECT_EQ(from.at<kLines>(line, more), first.at<kLines>(48 + line, 64 + column + more));
  }
  EXPECT_EQ(first.from<kLines>(32, 0).at<kLines>(16, 112), first.at<kLines>(48, 112));
}

/// Without stmatrix a lane stores its four words by themselves: two columns of line lane / 4, and the same 8 lines
/// further down or 8 columns further right.
TEST(Sm80LaneBlocks, SingleWordsLieWhereBlocksAreRead) {
  constexpr int kLines = 128;
  for_each_block(kLines, [](int line, int column) {
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint32_t at = LaneBlocks{gpu::words_of_lane(lane)}.at<kLines>(line, column);
      const std::uint32_t places[] = {at, at + 8 * 128, at ^ 16, (at ^ 16) + 8 * 128};
      for (int word = 0; word < 4; ++word) {
        const int chunk = swizzled<kLines>(line + lane / 4 + word % 2 * 8, column + word / 2 * 8);
        EXPECT_EQ(places[word], 2 * (chunk + lane % 4 * 2));
      }
    }
  });
}

TEST(Sm80LaneBlocks, NoBankConflicts) {
  for_each_tile([](auto lines) {
    constexpr int kLines = decltype(lines)::value;
    for_each_block(kLines, [](int line, int column) {
      const auto blocks = [&](std::uint32_t (*of_lane)(int)) {
        return walk(32, 1, 16, [&](int lane, int) {
          return static_cast<std::ptrdiff_t>(LaneBlocks{of_lane(lane)}.at<kLines>(line, column));
        });
      };
      EXPECT_EQ(blocks([](int lane) { return LaneBlocks::down_first(lane); }).worst, 1);
      EXPECT_EQ(blocks([](int lane) { return LaneBlocks::across_first(lane); }).worst, 1);
      const Access words = walk(32, 1, 4, [&](int lane, int) {
        return static_cast<std::ptrdiff_t>(LaneBlocks{gpu::words_of_lane(lane)}.at<kLines>(line, column));
      });
      EXPECT_EQ(words.worst, 1);
    });
  });
}

/// This shows that the test can fail: without the swizzle the eight lines of a phase lie in the same banks.
TEST(Sm80LaneBlocks, WithoutASwizzleThereAreConflicts) {
  EXPECT_EQ(walk(32, 1, 16, [](int lane, int) { return std::ptrdiff_t{lane % 16 * 128 + lane / 16 * 16}; }).worst, 8);
}

}  // namespace
}  // namespace falchion::testing
