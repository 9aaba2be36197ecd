// tests/gemm_few_test.cpp: Hopper's GEMM kernel for few rows, counted and modelled on the host: each block of k of each
// tile comes once, each row of a tile becomes D once, the exchange of the sums in a cluster neither hangs nor mixes two
// tiles, and nor do the loads of A that CTAs share.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/divide.hpp"
#include "tiles/gemm/sm90_few.hpp"

namespace falchion::testing {
namespace {

using sm90::GemmFewPart;
using sm90::GemmFewPlace;
using sm90::GemmFewRows;
using sm90::GemmFewTile;

constexpr sm90::GemmFewTiles kTile = sm90::gemm_few_tiles();

/// Parts of k and tiles side by side, for clusters of up to 8 CTAs.
template <class F>
void for_each_cluster(F f) {
  for (const int neighbours : {1, 2, 4, 8})
    for (int parts = 1; parts * neighbours <= 8; ++parts) f(parts, neighbours);
}

TEST(GemmFew, EachTileComesOnce) {
  for (const std::int64_t batch : {1, 3})
    for (const std::int64_t m : {1, 64, 65, 200})
      for (const std::int64_t n : {1, 128, 700})
        for (const int columns : {16, 40, 96, 128})
          for (const int neighbours : {1, 2, 4, 8}) {
            gpu::GemmArgs a;
            a.batch = batch;
            a.columns = columns;
            a.neighbours = neighbours;
            a.tiles_m = ceil_div(m, kTile.rows);
            a.tiles_n = ceil_div(ceil_div(n, columns), neighbours);
            std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen;
            for (std::uint32_t id = 0; id < GemmFewTile::count(a); ++id)
              for (int neighbour = 0; neighbour < neighbours; ++neighbour) {
                const auto t = GemmFewTile::of(a, id, neighbour), first = GemmFewTile::of(a, id, 0);
                ASSERT_TRUE(t.batch == first.batch && t.row0 == first.row0) << "they share rows of A";
                ASSERT_TRUE(t.batch < batch && t.row0 < m && first.column0 < n);
                ASSERT_TRUE(seen.insert({t.batch, t.row0, t.column0}).second);
              }
            ASSERT_EQ(static_cast<std::int64_t>(seen.size()), batch * a.tiles_m * a.tiles_n * neighbours);
          }
}

TEST(GemmFew, EachBlockOfATileComesOnce) {
  for (const std::int64_t k : {0, 1, 64, 65, 1000, 1024})
    for_each_cluster([&](int parts, int neighbours) {
      gpu::GemmArgs a;
      a.k = k;
      a.splits = parts;
      a.neighbours = neighbours;
      std::map<int, std::int64_t> next;
      for (int rank = 0; rank < parts * neighbours; ++rank) {
        const auto place = GemmFewPlace::of(a, rank);
        ASSERT_TRUE(place.ctas() == parts * neighbours && place.part < parts && place.neighbour < neighbours);
        ASSERT_TRUE(place.rank_of_part(place.part) == rank && place.rank_of_neighbour(place.neighbour) == rank);
        ASSERT_TRUE((place.ranks_of_neighbours() >> rank & 1) != 0);
        const auto part = GemmFewPart::of(a, place.part, parts);
        for (std::int64_t at = part.k0; at < part.k1; at += kTile.depth) {
          ASSERT_EQ(at, next[place.neighbour]) << "ranks follow the order of k";
          next[place.neighbour] += kTile.depth;
        }
      }
      for (int neighbour = 0; neighbour < neighbours; ++neighbour)
        ASSERT_EQ(next[neighbour], ceil_div(k, std::int64_t{kTile.depth}) * kTile.depth);
    });
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

/// The CTAs that share A, with the barriers of their stages: producers and consumers as produce and consume have them,
/// and loads that arrive in any order. A load of A arrives in each CTA at a time of its own.
class ModelOfRing {
 public:
  ModelOfRing(int ctas, int blocks, unsigned seed) : ctas_(ctas), blocks_(blocks), random_(seed), cta_(ctas) {
    for (Cta& cta : cta_)
      for (Stage& stage : cta.stages) stage.empty.init(kTile.consumers() * ctas);
  }

  /// Returns what went wrong, or "".
  std::string run() {
    for (int stuck = 0; !done();) {
      const auto rank = static_cast<int>(random_() % static_cast<unsigned>(ctas_));
      const auto what = static_cast<int>(random_() % static_cast<unsigned>(kTile.consumers() + 2));
      const bool went_on = what == 0 ? produce(rank) : what == 1 ? arrive() : consume(rank, what - 2);
      stuck = went_on ? 0 : stuck + 1;
      if (stuck > 100000) return "it hangs";
      if (!wrong_.empty()) return wrong_;
    }
    return "";
  }

 private:
  struct Stage {
    ModelBarrier empty;
    int full_phase = 0, missing = 0;  // loads that are expected and have not arrived; below 0: arrived before
    bool expects = false;             // the producer's arrival in this phase
    int a = -1, b = -1, read = 0;     // blocks that lie there; consumers that have read them
  };
  struct Cta {
    std::array<Stage, kTile.stages> stages;
    int produced = 0;
    std::array<int, kTile.consumers()> consumed{};
  };
  struct Load {
    int rank, block;
    bool of_a;
  };
  Cta& cta_at(int rank) { return cta_[static_cast<std::size_t>(rank)]; }
  Stage& stage_at(int rank, int block) { return cta_at(rank).stages[static_cast<std::size_t>(block % kTile.stages)]; }
  bool done() {
    for (const Cta& cta : cta_)
      for (const int blocks : cta.consumed)
        if (blocks < blocks_) return false;
    return true;
  }
  static void end_phase(Stage* stage) {
    if (!stage->expects || stage->missing != 0) return;
    stage->expects = false;
    ++stage->full_phase;
  }

  bool produce(int rank) {
    Cta& own = cta_at(rank);
    const int block = own.produced;
    if (block == blocks_) return false;
    Stage& stage = stage_at(rank, block);
    if (!stage.empty.passed(block / kTile.stages % 2 ^ 1)) return false;
    stage.expects = true;
    stage.missing += 2;
    end_phase(&stage);
    if (block % ctas_ == rank)
      for (int other = 0; other < ctas_; ++other) loads_.push_back({other, block, true});
    loads_.push_back({rank, block, false});
    ++own.produced;
    return true;
  }
  bool arrive() {
    if (loads_.empty()) return false;
    std::swap(loads_[random_() % loads_.size()], loads_.back());
    const Load load = loads_.back();
    loads_.pop_back();
    Stage& stage = stage_at(load.rank, load.block);
    int& place = load.of_a ? stage.a : stage.b;
    if (place >= 0 && stage.read < kTile.consumers()) wrong_ = "a block is overwritten before it is read";
    place = load.block;
    --stage.missing;
    if (stage.a == load.block && stage.b == load.block) stage.read = 0;
    end_phase(&stage);
    return true;
  }
  bool consume(int rank, int consumer) {
    int& block = cta_at(rank).consumed[static_cast<std::size_t>(consumer)];
    if (block == blocks_) return false;
    Stage& stage = stage_at(rank, block);
    if (stage.full_phase % 2 == block / kTile.stages % 2) return false;
    if (stage.a != block || stage.b != block) wrong_ = "another block is read";
    ++stage.read;
    for (int other = 0; other < ctas_; ++other) stage_at(other, block).empty.arrive();
    ++block;
    return true;
  }

  const int ctas_, blocks_;
  std::mt19937 random_;
  std::vector<Cta> cta_;
  std::vector<Load> loads_;
  std::string wrong_;
};

TEST(GemmFew, LoadsThatAreSharedNeitherHangNorOverwrite) {
  for (const int ctas : {1, 2, 4, 8})
    for (unsigned seed = 0; seed < 20; ++seed)
      EXPECT_EQ(ModelOfRing(ctas, 5 * kTile.stages + 3, seed).run(), "") << ctas << " CTAs, seed " << seed;
}

/// All stages lie in the ring, and the rows that a product reads past the end of the last stage in shared memory. At
/// least eight stages keep 128 KB of B in flight where a tile has all columns.
TEST(GemmFew, StagesFitIntoSharedMemory) {
  for (const int width : {8, 16, 32, 64})
    for (int columns = 8; columns <= kTile.columns; columns += 8) {
      const int stages = kTile.stages_of(columns, width), stage = kTile.stage_bytes(columns, width);
      EXPECT_TRUE(stages >= 8 && stages <= kTile.stages) << columns;
      EXPECT_EQ(stage % 1024, 0);
      EXPECT_LE(stages * stage, kTile.ring_bytes(width));
      EXPECT_LE((stages - 1) * stage + kTile.columns * kTile.depth * 2, sm90::GemmFewTiles::kSharedBytes);
    }
}

}  // namespace
}  // namespace falchion::testing
