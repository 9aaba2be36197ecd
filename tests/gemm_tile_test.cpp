// tests/gemm_tile_test.cpp: the tiles of a GEMM on a GPU, counted on the host: each block of k of each tile of D comes
// once.
#include "gpu/gemm_tile.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "policy/divide.hpp"

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
  const std::int64_t blocks = ceil_div(k, kDepth), each = ceil_div(blocks, splits);
  a.depth = each * kDepth;
  a.splits = static_cast<int>(ceil_div(blocks, each));
  return a;
}

template <std::int64_t kBand>
void expect_each_block_once(const gpu::GemmArgs& a) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::set<std::int64_t>> seen;
  const std::int64_t all = a.tiles_m * a.tiles_n * a.batch * a.splits;
  for (std::int64_t id = 0; id < all; ++id) {
    const auto t = gpu::GemmTile::of<kBand>(a, id, kRows, kColumns);
    ASSERT_TRUE(t.row0 >= 0 && t.row0 < a.m && t.row0 % kRows == 0) << t.row0;
    ASSERT_TRUE(t.column0 >= 0 && t.column0 < a.n && t.column0 % kColumns == 0) << t.column0;
    ASSERT_TRUE(t.k0 >= 0 && t.k0 < t.k1 && t.k1 <= a.k) << t.k0 << ", " << t.k1;
    std::set<std::int64_t>& blocks = seen[{t.batch, t.row0, t.column0}];
    for (std::int64_t k = t.k0; k < t.k1; k += kDepth) {
      ASSERT_TRUE(blocks.insert(k).second) << "tile " << id << ", k " << k;
    }
  }
  ASSERT_EQ(static_cast<std::int64_t>(seen.size()), a.tiles_m * a.tiles_n * a.batch);
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
            expect_each_block_once<8>(args_of(batch, m, n, k, splits));
            expect_each_block_once<16>(args_of(batch, m, n, k, splits));
            if (HasFatalFailure()) return;
          }
}

/// Tiles that run at the same time are neighbours: the first 128 are 16 down and 8 across, or 8 down and 16 across.
TEST(GemmTile, ABandIsWorkedOnColumnByColumn) {
  const gpu::GemmArgs a = args_of(1, 64 * kRows, 64 * kColumns, kDepth, 1);
  const auto extent = [&](auto of) {
    std::set<std::int64_t> rows, columns;
    for (std::int64_t id = 0; id < 128; ++id) {
      const gpu::GemmTile t = of(id);
      rows.insert(t.row0);
      columns.insert(t.column0);
    }
    return std::pair(rows.size(), columns.size());
  };
  EXPECT_EQ(extent([&](auto id) { return gpu::GemmTile::of<16>(a, id, kRows, kColumns); }), std::pair(16UL, 8UL));
  EXPECT_EQ(extent([&](auto id) { return gpu::GemmTile::of<8>(a, id, kRows, kColumns); }), std::pair(8UL, 16UL));
}

/// More than 2^31 rows, as a batch may have as one matrix: places are counted in 64 bits.
TEST(GemmTile, CountsIn64Bits) {
  gpu::GemmArgs a = args_of(1, std::int64_t{1} << 40, 256, 64, 1);
  const std::int64_t last = a.tiles_m - 1;
  EXPECT_EQ(gpu::GemmTile::of<16>(a, last, kRows, kColumns).row0, last * kRows);
}

}  // namespace
}  // namespace falchion::testing
