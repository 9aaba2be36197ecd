// tests/gemm_tile_test.cpp: the tiles of a GEMM on a GPU, counted on the host: each block of k of each tile of D comes
// once.
#include "gpu/gemm/tile.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "base/divide.hpp"

namespace falchion::testing {
namespace {

constexpr int kRows = 128, kColumns = 256, kDepth = 64;

gpu::GemmArgs args_of(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t splits) {
  gpu::GemmArgs a;
  a.batch = batch;
  a.m = m;
  a.n = n;
  a.k = k;
  a.tiles_m = ceil_div(m, kRows);
  a.tiles_n = ceil_div(n, kColumns);
  a.band = 8;
  const std::int64_t blocks = ceil_div(k, kDepth), each = ceil_div(blocks, splits);
  a.depth = each * kDepth;
  a.splits = static_cast<int>(ceil_div(blocks, each));
  if (a.splits == 1) a.whole = gpu::GemmPiece::tiles(a);
  return a;
}

/// Each block of k of each tile belongs to one piece of work, and each part of a tile that is cut has a place of its
/// own.
void expect_each_block_once(gpu::GemmArgs a) {
  a.set_divisors();
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::set<std::int64_t>> seen;
  std::set<std::int64_t> parts;
  for (std::int64_t id = 0; id < gpu::GemmPiece::count(a); ++id) {
    const gpu::GemmTile t(a, gpu::GemmPiece::of(a, static_cast<std::uint32_t>(id)), kRows, kColumns);
    ASSERT_TRUE(t.row0 >= 0 && t.row0 < a.m && t.row0 % kRows == 0) << t.row0;
    ASSERT_TRUE(t.column0 >= 0 && t.column0 < a.n && t.column0 % kColumns == 0) << t.column0;
    ASSERT_TRUE(t.k0 >= 0 && t.k0 < t.k1 && t.k1 <= a.k) << t.k0 << ", " << t.k1;
    ASSERT_EQ(t.part >= 0, id >= a.whole);
    if (t.part >= 0) {
      ASSERT_TRUE(parts.insert(t.part).second) << "part " << t.part;
      const std::int64_t tile = a.whole + t.part / a.splits;  // as gemm_combine finds it
      const gpu::GemmTile again(a, gpu::GemmPiece::tile(a, static_cast<std::uint32_t>(tile)), kRows, kColumns);
      ASSERT_EQ(std::tuple(t.batch, t.row0, t.column0), std::tuple(again.batch, again.row0, again.column0));
      ASSERT_EQ(t.k0, t.part % a.splits * a.depth);  // parts of a tile lie in the order of k
    }
    std::set<std::int64_t>& blocks = seen[{t.batch, t.row0, t.column0}];
    for (std::int64_t k = t.k0; k < t.k1; k += kDepth) {
      ASSERT_TRUE(blocks.insert(k).second) << "piece " << id << ", k " << k;
    }
  }
  ASSERT_EQ(static_cast<std::int64_t>(parts.size()), (gpu::GemmPiece::tiles(a) - a.whole) * a.splits);
  ASSERT_TRUE(parts.empty() || *parts.rbegin() + 1 == static_cast<std::int64_t>(parts.size()));
  ASSERT_EQ(static_cast<std::int64_t>(seen.size()), gpu::GemmPiece::tiles(a));
  for (const auto& [tile, blocks] : seen)
    ASSERT_EQ(static_cast<std::int64_t>(blocks.size()), ceil_div(a.k, std::int64_t{kDepth}));
}

TEST(GemmTile, EachBlockOfEachTileComesOnce) {
  for (const std::int64_t batch : {1, 3})
    for (const std::int64_t m : {1, 128, 129, 16 * 128, 16 * 128 + 1, 40 * 128 + 5})
      for (const std::int64_t n : {1, 256, 700, 20 * 256})
        for (const std::int64_t k : {1, 64, 65, 300, 1024})
          for (const std::int64_t splits : {1, 2, 3, 7}) {
            SCOPED_TRACE(::testing::Message() << batch << ", " << m << " x " << n << " x " << k << ", " << splits);
            gpu::GemmArgs a = args_of(batch, m, n, k, splits);
            expect_each_block_once(a);
            a.band = 16;
            if (a.splits > 1) a.whole = gpu::GemmPiece::tiles(a) * 2 / 3;  // the last third is cut
            expect_each_block_once(a);
            if (HasFatalFailure()) return;
          }
}

/// Tiles that run at the same time are neighbours: the first 128 are 16 down and 8 across, or 8 down and 16 across.
TEST(GemmTile, ABandIsWorkedOnColumnByColumn) {
  gpu::GemmArgs a = args_of(1, 64 * kRows, 64 * kColumns, kDepth, 1);
  const auto extent = [&](int band) {
    a.band = band;
    a.set_divisors();
    std::set<std::int64_t> rows, columns;
    for (std::int64_t id = 0; id < 128; ++id) {
      const gpu::GemmTile t(a, gpu::GemmPiece::of(a, static_cast<std::uint32_t>(id)), kRows, kColumns);
      rows.insert(t.row0);
      columns.insert(t.column0);
    }
    return std::pair(rows.size(), columns.size());
  };
  EXPECT_EQ(extent(16), std::pair(16UL, 8UL));
  EXPECT_EQ(extent(8), std::pair(8UL, 16UL));
}

/// More than 2^31 rows, as a batch may have as one matrix: places are counted in 64 bits.
TEST(GemmTile, CountsIn64Bits) {
  gpu::GemmArgs a = args_of(1, std::int64_t{1} << 37, 256, 64, 1);
  a.set_divisors();
  const std::int64_t last = a.tiles_m - 1;
  const gpu::GemmTile t(a, gpu::GemmPiece::of(a, static_cast<std::uint32_t>(last)), kRows, kColumns);
  EXPECT_EQ(t.row0, last * kRows);
}

TEST(Divisor, DividesAsTheProcessorDoes) {
  constexpr std::uint32_t kMost = INT32_MAX;
  for (const std::uint32_t d :
       {1U, 2U, 3U, 5U, 7U, 8U, 48U, 641U, 65535U, 65536U, 65537U, 715827883U, kMost - 1, kMost}) {
    const Divisor by(d);
    for (const std::uint32_t n : {0U, 1U, d - 1, d, 2 * d - 1, kMost / d * d, kMost / d * d - 1, kMost - 1, kMost})
      if (n <= kMost) { EXPECT_EQ(by.divide(n), n / d) << n << " / " << d; }
  }
  std::uint32_t random = 1;
  for (int i = 0; i < 1'000'000; ++i) {
    random = random * 1664525U + 1013904223U;
    const std::uint32_t n = random >> 1;
    random = random * 1664525U + 1013904223U;
    const std::uint32_t d = std::max(random >> (1 + i % 31), 1U);
    ASSERT_EQ(Divisor(d).divide(n), n / d) << n << " / " << d;
  }
}

}  // namespace
}  // namespace falchion::testing
