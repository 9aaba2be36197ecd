// tests/gemm_bytes_turns_test.cpp: the order in which blocks of k go through two accumulators, on the host: each block
// is started once and finished once, in order, and no accumulator is started while its sums wait to be read.
#include "sm90/gemm/bytes/turns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace falchion::testing {
namespace {

TEST(GemmBytesTurns, EachBlockOnceAndInOrder) {
  for (std::int64_t blocks = 0; blocks <= 9; ++blocks) {
    SCOPED_TRACE(blocks);
    std::int64_t started = 0, finished = 0, held = 0;
    std::int64_t even = -1, odd = -1;  // the block that an accumulator has
    sm90::take_turns(
        blocks, even, odd,
        [&](std::int64_t& accumulator) {
          EXPECT_EQ(accumulator, -1);
          accumulator = started++;
          held = std::max(held, started - finished);
        },
        [&](std::int64_t& accumulator, auto running) {
          EXPECT_EQ(accumulator, finished);
          accumulator = -1;
          ++finished;
          EXPECT_EQ(started - finished, running);
        });
    EXPECT_EQ(started, blocks);
    EXPECT_EQ(finished, blocks);
    EXPECT_EQ(held, std::min<std::int64_t>(blocks, 2));  // stages of the ring that a warpgroup has at a time
  }
}

}  // namespace
}  // namespace falchion::testing
