// tests/gemm_few_test.cpp: Hopper's GEMM kernel for few rows, counted and modelled on the host: each block of k of each
// tile comes once, each row of a tile becomes D once, and the exchange of the sums in a cluster neither hangs nor mixes
// two tiles.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "base/divide.hpp"
#include "tiles/gemm/sm90_few.hpp"

namespace falchion::testing {
namespace {

using sm90::GemmFewPart;
using sm90::GemmFewRows;
using sm90::GemmFewTile;

constexpr sm90::GemmFewTiles kTile = sm90::gemm_few_tiles();

TEST(GemmFew, EachBlockOfEachTileComesOnce) {
  for (const std::int64_t batch : {1, 3})
    for (const std::int64_t m : {1, 64, 65, 200})
      for (const std::int64_t n : {1, 128, 700})
        for (const std::int64_t k : {0, 1, 64, 65, 1000, 1024})
          for (const int columns : {16, 96, 128})
            for (const int ctas : {1, 2, 3, 4, 5, 6, 7, 8}) {
              gpu::GemmArgs a;
              a.batch = batch;
              a.k = k;
              a.columns = columns;
              a.tiles_m = ceil_div(m, kTile.rows);
              a.tiles_n = ceil_div(n, columns);
              std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen;
              for (std::int64_t id = 0; id < GemmFewTile::count(a); ++id) {
                const auto t = GemmFewTile::of(a, id);
                ASSERT_TRUE(t.batch < batch && t.row0 < m && t.column0 < n);
                ASSERT_TRUE(seen.insert({t.batch, t.row0, t.column0}).second);
              }
              std::int64_t next = 0;
              for (int rank = 0; rank < ctas; ++rank) {
                const auto part = GemmFewPart::of(a, rank, ctas);
                for (std::int64_t at = part.k0; at < part.k1; at += kTile.depth) {
                  ASSERT_EQ(at, next);
                  next += kTile.depth;
                }
              }
              ASSERT_EQ(next, ceil_div(k, std::int64_t{kTile.depth}) * kTile.depth);
            }
}

TEST(GemmFew, EachRowOfATileIsStoredOnce) {
  for (const int ctas : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const int rows : {1, 7, 16, 64}) {
      std::vector<int> stored(static_cast<std::size_t>(rows));
      for (int rank = 0; rank < ctas; ++rank)
        for (int warp = 0; warp < 4 * kTile.consumers(); ++warp) {
          const auto own = GemmFewRows::of(warp, rank, ctas);
          for (int row = own.first; row < rows; row += own.step) ++stored[static_cast<std::size_t>(row)];
        }
      EXPECT_EQ(stored, std::vector<int>(static_cast<std::size_t>(rows), 1)) << ctas;
    }
}

/// The lanes of a warp write a register of the product to 32 banks: four pairs of rows of D, 8 columns each.
TEST(GemmFew, SumsAreWrittenWithoutConflicts) {
  std::set<int> banks;
  for (int lane = 0; lane < 32; ++lane) banks.insert((lane % 4 * 2 * kTile.pitch() + lane / 4) % 32);
  EXPECT_EQ(banks.size(), 32U);
  EXPECT_EQ(kTile.pitch() % 4, 0);  // a row is read 16 bytes at a time
}

/// A barrier of shared memory: a phase ends with its last arrival. A wait for a parity returns once a phase of that
/// parity has ended, also if the next one has ended too, so no waiter may be a whole phase behind.
struct ModelBarrier {
  int arrivals = 0, left = 0, phase = 0;
  void init(int count) { arrivals = left = count; }
  void arrive() {
    if (--left > 0) return;
    left = arrivals;
    ++phase;
  }
  bool passed(int parity) const { return phase % 2 != parity; }
};

/// The consumer warps of a cluster, as store_tile has them: a warp is at a step of a tile.
class ModelOfExchange {
 public:
  ModelOfExchange(int ctas, int tiles, unsigned seed) : ctas_(ctas), tiles_(tiles), random_(seed), cta_(ctas) {
    for (Cta& cta : cta_) {
      cta.written.init(ctas);
      cta.read.init(kWarps * ctas);
      cta.together.init(kWarps);
    }
  }

  /// Warps take steps in a random order until all are done. Returns what went wrong, or "".
  std::string run() {
    for (int done = 0, stuck = 0; done < ctas_ * kWarps;) {
      const auto rank = static_cast<int>(random_() % static_cast<unsigned>(ctas_));
      const auto warp = static_cast<int>(random_() % kWarps);
      const bool was = cta_at(rank).warp[warp].turn == tiles_;
      if (was) continue;
      stuck = step(rank, warp) ? 0 : stuck + 1;
      if (stuck > 100000) return "it hangs";
      if (!wrong_.empty()) return wrong_;
      done += cta_at(rank).warp[warp].turn == tiles_;
    }
    return "";
  }

 private:
  static constexpr int kWarps = 4 * kTile.consumers();
  struct Warp {
    int turn = 0, step = 0;
  };
  struct Cta {
    ModelBarrier written, read, together;
    std::array<Warp, kWarps> warp{};
    std::array<int, kWarps> sums{};  // the tile, counted from 1, whose sums each warp has put there
  };
  Cta& cta_at(int rank) { return cta_[static_cast<std::size_t>(rank)]; }

  /// Returns whether the warp could go on.
  bool step(int rank, int number) {
    Cta& own = cta_at(rank);
    Warp& warp = own.warp[static_cast<std::size_t>(number)];
    switch (warp.step) {
      case 0:
        if (warp.turn > 0 && !own.read.passed((warp.turn - 1) % 2)) return false;
        own.sums[static_cast<std::size_t>(number)] = warp.turn + 1;
        break;
      case 1: own.together.arrive(); break;
      case 2:
        if (!own.together.passed(warp.turn % 2)) return false;
        if (number == 0)
          for (Cta& cta : cta_) cta.written.arrive();
        break;
      case 3:
        if (!own.written.passed(warp.turn % 2)) return false;
        break;
      case 4:
        for (const Cta& cta : cta_)
          for (const int tile : cta.sums)
            if (tile != warp.turn + 1) wrong_ = "sums of another tile are read";
        break;
      default:
        for (Cta& cta : cta_) cta.read.arrive();
        warp = {.turn = warp.turn + 1, .step = 0};
        return true;
    }
    ++warp.step;
    return true;
  }

  const int ctas_, tiles_;
  std::mt19937 random_;
  std::vector<Cta> cta_;
  std::string wrong_;
};

TEST(GemmFew, TheExchangeOfSumsNeitherHangsNorMixesTiles) {
  for (const int ctas : {1, 2, 3, 4, 5, 6, 7, 8})
    for (unsigned seed = 0; seed < 20; ++seed)
      EXPECT_EQ(ModelOfExchange(ctas, 7, seed).run(), "") << ctas << " CTAs, seed " << seed;
}

/// What a CTA needs is at most the 227 KB that Hopper gives it, and eight stages keep 128 KB of B in flight.
TEST(GemmFew, FitsIntoSharedMemory) {
  EXPECT_LE(kTile.shared_bytes(kTile.rows), 227 * 1024);
  EXPECT_GE(kTile.stages * kTile.columns * kTile.depth * 2, 96 * 1024);
}

}  // namespace
}  // namespace falchion::testing
