// tests/sm80_tiles_test.cpp: runs the scheduler of the sm80 kernels (src/gpu/attention_forward/tile.cuh) on the host.
// Every query row must belong to exactly one tile, and the last rows of a sequence must come first. Every tile of keys
// that a row sees must be visited by exactly one split, and no other tile may be visited.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "plan/attention.hpp"
#include "plan/plan_data.hpp"
#include "plan/text.hpp"
#include "support/host_warp.hpp"

#include "gpu/attention_forward/tile.cuh"  // This comes after the warp of the host.

namespace falchion::testing {
namespace {

using gpu::AttentionArgs;
using gpu::AttentionTile, gpu::Divisors;

/// Whether query q sees key k, from the arguments alone. This is the definition that the tiles are compared with.
bool sees(const AttentionArgs& a, std::int64_t s_q, std::int64_t s_k, std::int64_t q, std::int64_t k) {
  const std::int64_t x = k - q - (a.bottom_right ? s_k - s_q : a.diagonal);
  return 0 <= k && k < s_k && (a.left < 0 || x >= -a.left) && (a.right < 0 || x <= a.right);
}

/// One sequence as the lengths define it.
struct Sequence {
  std::int64_t batch = 0, begin_q = 0, begin_k = 0, s_q = 0, s_k = 0;
};
std::int64_t used(const std::int32_t* used, std::size_t b, std::int64_t length) {
  return used == nullptr ? length : std::clamp<std::int64_t>(used[b], 0, length);
}
std::vector<Sequence> sequences_of(const AttentionArgs& a) {
  std::vector<Sequence> out;
  for (std::size_t b = 0; b < static_cast<std::size_t>(a.b); ++b) {
    Sequence x{static_cast<std::int64_t>(b), 0, 0, a.s_q, a.s_k};
    if (a.packed) x = {0, a.cu_q[b], a.cu_k[b], a.cu_q[b + 1] - a.cu_q[b], a.cu_k[b + 1] - a.cu_k[b]};
    x.s_q = used(a.used_q, b, x.s_q);
    x.s_k = used(a.used_k, b, x.s_k);
    out.push_back(x);
  }
  return out;
}

/// Sets the tiles as the plan does.
template <int kRows>
void set_tiles(AttentionArgs* a) {
  Attention problem;
  problem.b = a->b;
  problem.s_q = a->s_q;
  problem.packed = a->packed;
  a->tiles = gpu_row_tiles(problem, a->total_q, a->group, kRows);
}
int blocks_of(const AttentionArgs& a) {
  return static_cast<int>(a.tiles * (a.h_q / a.group) * (a.packed ? 1 : a.b) * a.splits);
}

/// Finds the tile of block x. Dense tiles are found by one lane. Packed ones are found by a warp, whose lanes must
/// agree.
template <int kRows, int kKeys>
AttentionTile tile_of(const AttentionArgs& a, const Divisors& by, int x) {
  if (!a.packed) return AttentionTile::of<kRows, kKeys>(a, by, x);
  std::vector<AttentionTile> tiles;
  EXPECT_TRUE(HostWarp::run([&] { tiles.push_back(AttentionTile::of<kRows, kKeys>(a, by, x)); }));
  const auto key = [](const AttentionTile& t) {
    return std::tuple(t.b, t.h, t.split, t.row0, t.rows, t.begin, t.end, t.unmasked_begin, t.unmasked_end);
  };
  for (const AttentionTile& t : tiles) EXPECT_EQ(key(t), key(tiles[0]));
  return tiles[0];
}

/// Says what is wrong with the keys of a tile of queries [q0, q1], or "" if nothing is. It also counts the visits of
/// each tile of keys.
template <int kKeys>
std::string check_keys(const AttentionArgs& a, const Sequence& s, const AttentionTile& t, std::int64_t q0,
                       std::int64_t q1, std::vector<int>* visits) {
  if (t.begin < 0 || t.end < t.begin || t.end > static_cast<int>(visits->size()))
    return text("visits ", t.begin, " ", t.end);
  for (int n = t.begin; n < t.end; ++n) ++(*visits)[static_cast<std::size_t>(n)];
  for (int n = 0; n < static_cast<int>(visits->size()); ++n) {
    bool all = true, any = false;
    for (std::int64_t q = q0; q <= q1; ++q) {
      for (std::int64_t k = n * kKeys; k < (n + 1) * kKeys; ++k) {
        const bool seen = sees(a, s.s_q, s.s_k, q, k);
        if (seen != t.mask.keep(q, k)) return text("the mask errs at ", q, " ", k);
        all = all && seen;
        any = any || seen;
      }
    }
    // The kernel asks this to skip the test of the band.
    const bool untested = n * kKeys >= t.unmasked_begin && (n + 1) * kKeys <= t.unmasked_end;
    if (untested != all) return text("tile ", n, untested ? " is not masked" : " is masked in vain");
    if (!any && n >= t.begin && n < t.end) return text("tile ", n, " is visited in vain");
    if (any) (*visits)[static_cast<std::size_t>(n)] += 1 << 20;  // Some split must visit this tile.
  }
  return "";
}

/// The block that stands at each place.
using Order = int (*)(int place, int blocks);
int in_order(int place, int) { return place; }
int backwards(int place, int blocks) { return blocks - 1 - place; }

/// Runs every block of a launch, and returns "" or the first thing that is wrong.
template <int kRows, int kKeys>
std::string check(const AttentionArgs& a, Order order = in_order) {
  const Divisors by(a);
  const std::vector<Sequence> sequences = sequences_of(a);
  const auto capacity = static_cast<std::size_t>(a.packed ? a.total_q : a.s_q);
  // These are counted for each (b, h, split, query).
  std::vector<int> rows(static_cast<std::size_t>(a.b * a.h_q * a.splits) * capacity);
  const auto key_tiles = static_cast<std::size_t>(((a.packed ? a.total_k : a.s_k) + kKeys - 1) / kKeys);
  const auto row_tiles = static_cast<std::size_t>(capacity) * a.group / kRows + 1;
  // For each (b, h, row tile) this holds a count for each tile of keys.
  std::vector<std::vector<int>> visits(static_cast<std::size_t>(a.b * a.h_q) * row_tiles);
  std::map<std::tuple<int, int, int>, int> row0_before;  // of each sequence, head and split
  for (int x = 0; x < blocks_of(a); ++x) {
    const AttentionTile t = tile_of<kRows, kKeys>(a, by, order(x, blocks_of(a)));
    if (t.row0 >= t.rows) continue;  // This block is beyond the last tile and ends at once.
    const std::string where = text("block ", x, ": ");
    if (t.b < 0 || t.b >= a.b || t.split < 0 || t.split >= a.splits) return text(where, "no such sequence or split");
    const auto [before, first] = row0_before.try_emplace({t.b, t.h, t.split}, t.row0);
    if (!first && t.row0 >= before->second) return text(where, "row ", t.row0, " comes after row ", before->second);
    before->second = t.row0;
    const Sequence& s = sequences[static_cast<std::size_t>(t.b)];
    if (t.q.batch != s.batch || t.k.batch != s.batch || t.q.length != s.s_q || t.k.length != s.s_k)
      return text(where, "another sequence");
    if (a.packed && (t.q.begin != s.begin_q || t.k.begin != s.begin_k)) return text(where, "begins elsewhere");
    const int end = std::min(t.row0 + kRows, t.rows);
    for (int row = t.row0; row < end; ++row) {
      const int head = t.head(row), query = t.query(row);
      if (head < 0 || head >= a.h_q || query < 0 || query >= s.s_q) return text(where, "row ", row, " is outside");
      if (t.h_kv != head / (a.h_q / a.h_k)) return text(where, "head ", head, " has another K/V head");
      ++rows[static_cast<std::size_t>((t.b * a.h_q + head) * a.splits + t.split) * capacity +
             static_cast<std::size_t>(query)];
    }
    auto& of_tile =
        visits[static_cast<std::size_t>(t.b * a.h_q + t.h) * row_tiles + static_cast<std::size_t>(t.row0 / kRows)];
    of_tile.resize(key_tiles);
    const std::string bad = check_keys<kKeys>(a, s, t, t.query(t.row0), t.query(end - 1), &of_tile);
    if (!bad.empty()) return where + bad;
  }
  for (const auto& of_tile : visits) {
    // Every split must have found that the tile is seen, and one split must have visited it.
    for (int count : of_tile) {
      if (count != 0 && count != (a.splits << 20) + 1)
        return text("a tile of keys is visited ", count % (1 << 20), " times");
    }
  }
  for (std::size_t at = 0; at < rows.size(); ++at) {
    const auto query = static_cast<std::int64_t>(at % capacity);
    const auto b = at / capacity / static_cast<std::size_t>(a.h_q * a.splits);
    const int expected = query < sequences[b].s_q ? 1 : 0;
    if (rows[at] != expected) return text("query ", query, " of sequence ", b, " comes ", rows[at], " times");
  }
  return "";
}

AttentionArgs dense(std::int64_t b, std::int64_t s_q, std::int64_t s_k, std::int64_t h_q, std::int64_t h_k, int group) {
  AttentionArgs a;
  a.b = b;
  a.s_q = s_q;
  a.s_k = s_k;
  a.h_q = h_q;
  a.h_k = h_k;
  a.group = group;
  return a;
}
std::string name(const AttentionArgs& a) {
  return text("b ", a.b, " s_q ", a.s_q, " s_k ", a.s_k, " h ", a.h_q, "/", a.h_k, " group ", a.group, " left ", a.left,
              " right ", a.right, a.bottom_right ? "" : text(" at ", a.diagonal), " splits ", a.splits);
}

/// Tries every band on every small size.
template <int kRows, int kKeys>
void every_band(std::int64_t h_q, std::int64_t h_k, int group) {
  for (std::int64_t s_q = 1; s_q <= 9; ++s_q)
    for (std::int64_t s_k = 0; s_k <= 9; ++s_k)
      for (std::int64_t left = -1; left <= 10; ++left)
        for (std::int64_t right = -1; right <= 10; ++right)
          for (const std::int64_t diagonal : {std::int64_t{-99}, std::int64_t{0}, std::int64_t{3}, std::int64_t{-4}})
            for (const int splits : {1, 2, 3, 7}) {
              AttentionArgs a = dense(1, s_q, s_k, h_q, h_k, group);
              a.left = left;
              a.right = right;
              a.bottom_right = diagonal == -99;
              a.diagonal = a.bottom_right ? 0 : diagonal;
              a.splits = splits;
              set_tiles<kRows>(&a);
              ASSERT_EQ((check<kRows, kKeys>(a)), "") << name(a);
            }
}
TEST(Sm80Tiles, EveryBandOnSmallSizes) { every_band<4, 2>(1, 1, 1); }
TEST(Sm80Tiles, EveryBandOnPackedGroups) { every_band<4, 3>(3, 1, 3); }

TEST(Sm80Tiles, Dense) {
  for (const auto& [h_q, h_k, group] : {std::tuple{1, 1, 1}, {8, 2, 1}, {8, 2, 4}, {8, 2, 2}, {6, 1, 6}, {12, 4, 3}})
    for (const std::int64_t b : {1, 3})
      for (const std::int64_t s_q : {1, 64, 65, 200})
        for (const std::int64_t s_k : {0, 1, 64, 321})
          for (const int splits : {1, 2, 5, 16})
            for (const std::int64_t right : {-1, 0}) {
              AttentionArgs a = dense(b, s_q, s_k, h_q, h_k, group);
              a.right = right;
              a.left = s_k % 2 == 0 ? -1 : 70;
              a.splits = splits;
              set_tiles<64>(&a);
              ASSERT_EQ((check<64, 64>(a)), "") << name(a);
            }
}

TEST(Sm80Tiles, UsedLengthsOfABatch) {
  const std::int32_t used_q[] = {0, 5, 70, 999, -3}, used_k[] = {7, 0, 65, 999, 1};
  for (const int group : {1, 2})
    for (const int splits : {1, 3}) {
      AttentionArgs a = dense(5, 70, 130, 4, 2, group);
      a.used_q = used_q;
      a.used_k = used_k;
      a.right = 0;
      a.splits = splits;
      set_tiles<16>(&a);
      EXPECT_EQ((check<16, 32>(a)), "") << name(a);
    }
}

/// Packed sequences with these lengths. The lengths of the keys are the same ones in reverse order.
struct Packed {
  std::vector<std::int32_t> cu_q{0}, cu_k{0}, used_q, used_k;
  AttentionArgs args;
  Packed(const std::vector<int>& lengths, int h_q, int h_k, int group) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      cu_q.push_back(cu_q.back() + lengths[i]);
      cu_k.push_back(cu_k.back() + lengths[lengths.size() - 1 - i]);
      used_q.push_back(lengths[i] - static_cast<int>(i % 3));
      used_k.push_back(static_cast<int>(i * 7 % 40));
    }
    const int most = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    args = dense(static_cast<std::int64_t>(lengths.size()), most, most, h_q, h_k, group);
    args.packed = true;
    args.cu_q = cu_q.data();
    args.cu_k = cu_k.data();
    args.total_q = cu_q.back();
    args.total_k = cu_k.back();
  }
};

TEST(Sm80Tiles, Packed) {
  std::mt19937 random(1);
  std::vector<std::vector<int>> lists = {{0}, {1}, {0, 0, 5, 0}, {16, 32, 16}, {100, 1, 0, 17, 15, 16}};
  for (const std::size_t count : {32u, 33u, 70u}) {  // A warp looks at 32 sequences at once.
    auto& list = lists.emplace_back(count);
    for (int& length : list) length = random() % 3 == 0 ? 0 : static_cast<int>(random() % 40);
    lists.emplace_back(count, 0).back() = 33;   // Only the last sequence has any rows.
    lists.emplace_back(count, 0).front() = 33;  // Only the first one has any.
  }
  for (const auto& list : lists)
    for (const int group : {1, 2})
      for (const int splits : {1, 3}) {
        Packed packed(list, 4, 2, group);
        AttentionArgs& a = packed.args;
        a.splits = splits;
        a.right = 0;
        a.left = splits == 3 ? 20 : -1;
        if (splits == 3) {
          a.used_q = packed.used_q.data();
          a.used_k = packed.used_k.data();
        }
        set_tiles<16>(&a);
        ASSERT_EQ((check<16, 8>(a)), "") << list.size() << " sequences: " << name(a);
      }
}

/// Lengths are on the device and cannot be checked. Even with invalid ones no row outside the operands may be touched.
TEST(Sm80Tiles, LengthsThatLieStayInside) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::int32_t> cu_q(40), cu_k(40), used(39);
    for (auto* x : {&cu_q, &cu_k, &used})
      for (std::int32_t& value : *x)
        value =
            random() % 8 == 0 ? static_cast<std::int32_t>(random()) : static_cast<std::int32_t>(random() % 400) - 50;
    AttentionArgs a = dense(39, 300, 300, 2, 1, 2);
    a.packed = true;
    a.cu_q = cu_q.data();
    a.cu_k = cu_k.data();
    a.total_q = 300;
    a.total_k = 200;
    a.used_k = used.data();
    set_tiles<16>(&a);
    const Divisors by(a);
    for (int x = 0; x < blocks_of(a); ++x) {
      const AttentionTile t = tile_of<16, 8>(a, by, x);
      if (t.row0 >= t.rows) continue;
      ASSERT_TRUE(t.row0 >= 0 && t.q.begin >= 0 && t.q.begin + t.q.length <= 300 && t.rows == 2 * t.q.length);
      ASSERT_TRUE(t.k.begin >= 0 && t.k.length >= 0 && t.k.begin + t.k.length <= 200);
      ASSERT_TRUE(t.begin >= 0 && t.end <= (t.k.length + 7) / 8);
    }
  }
}

/// These show that the check can fail: there are too few tiles, or the first rows come first.
TEST(Sm80Tiles, AMissingTileIsFound) {
  AttentionArgs a = dense(1, 10, 10, 1, 1, 1);
  set_tiles<4>(&a);
  EXPECT_EQ((check<4, 4>(a)), "");
  --a.tiles;
  EXPECT_EQ((check<4, 4>(a)), "query 8 of sequence 0 comes 0 times");
}
TEST(Sm80Tiles, FirstRowsThatComeFirstAreFound) {
  AttentionArgs a = dense(1, 10, 10, 1, 1, 1);
  set_tiles<4>(&a);
  EXPECT_EQ((check<4, 4>(a, backwards)), "block 1: row 4 comes after row 0");
}
TEST(HostWarp, LanesThatPartAreFound) {
  EXPECT_TRUE(HostWarp::run([] { EXPECT_EQ(gpu::__ballot_sync(~0u, gpu::threadIdx.x % 2 == 0), 0x55555555u); }));
  EXPECT_TRUE(HostWarp::run([] {
    EXPECT_EQ(gpu::__shfl_up_sync(~0u, gpu::threadIdx.x, 4),
              gpu::threadIdx.x < 4 ? +gpu::threadIdx.x : gpu::threadIdx.x - 4);
  }));
  EXPECT_FALSE(HostWarp::run([] {
    if (gpu::threadIdx.x < 7) gpu::__shfl_sync(~0u, 1, 0);
  }));
}

}  // namespace
}  // namespace falchion::testing
