// tests/policy_cache_test.cpp: where a key lies, exhaustively on small caches, against a list of all slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policy/cache.hpp"
#include "policy/rotary.hpp"

namespace falchion::testing {
namespace {

CachePages pages_of(std::int64_t size, std::int64_t count, const std::vector<std::int32_t>& table,
                    std::int64_t columns) {
  return {.size = size,
          .count = count,
          .table = table.data(),
          .stride_sequence = columns,
          .stride_page = 1,
          .columns = columns,
          .by_size = Divisor(size)};
}

/// The slots of one sequence in the order of its keys.
std::vector<KeyPlace> slots(std::int64_t size, std::int64_t count, const std::int32_t* table, std::int64_t columns) {
  std::vector<KeyPlace> out;
  for (std::int64_t n = 0; n < columns; ++n) {
    const bool exists = table[n] >= 0 && table[n] < count;
    for (std::int64_t row = 0; row < size; ++row) out.push_back({exists ? table[n] : -1, row});
  }
  return out;
}

void expect_slots(const KeyRows& rows, const std::vector<KeyPlace>& want, std::int64_t begin) {
  for (std::size_t j = 0; j + static_cast<std::size_t>(begin) < want.size(); ++j) {
    const KeyPlace got = rows.at(static_cast<std::int64_t>(j)), at = want[j + static_cast<std::size_t>(begin)];
    ASSERT_EQ(got.exists(), at.batch >= 0) << j;
    if (!got.exists()) continue;
    ASSERT_EQ(got.batch, at.batch) << j;
    ASSERT_EQ(got.row, at.row) << j;
  }
}

constexpr std::int32_t kIds[] = {0, 1, 2, 3, -1, INT32_MIN, INT32_MAX};  // of two pages that there are

TEST(CachePages, EachKeyIsInItsSlot) {
  for (const std::int64_t size : {1, 2, 3, 5, 16, 64})
    for (const std::int32_t first : kIds)
      for (const std::int32_t second : kIds)
        for (const std::int32_t third : kIds) {
          const std::vector<std::int32_t> table{third, first, second, first, second, third};
          const CachePages pages = pages_of(size, 2, table, 3);
          EXPECT_EQ(pages.room(0), 3 * size);
          for (std::int64_t b = 0; b < 2; ++b)
            for (std::int64_t begin = 0; begin <= size; ++begin)
              expect_slots(KeyRows::of(pages, b, b, begin), slots(size, 2, table.data() + 3 * b, 3), begin);
        }
}

TEST(CachePages, StartsCutOneTable) {
  const std::vector<std::int32_t> table{4, 3, 2, 1, 0, 2, 4};
  for (const std::int64_t size : {1, 3, 16})
    for (std::int32_t from = -2; from <= 9; ++from)
      for (std::int32_t to = -2; to <= 9; ++to) {
        const std::int32_t starts[] = {0, from, to};
        CachePages pages = pages_of(size, 5, table, 7);
        pages.starts = starts;
        const std::int64_t first = std::clamp(from, 0, 7), end = std::clamp(to, 0, 7);
        ASSERT_EQ(pages.room(1), end > first ? (end - first) * size : 0) << from << " " << to;
        if (pages.room(1) > 0)
          expect_slots(KeyRows::of(pages, 1, 1, 0), slots(size, 5, table.data() + first, end - first), 0);
      }
}

TEST(CachePages, ATableMayHaveAnyStrides) {
  const std::vector<std::int32_t> table{5, 9, 4, 9, 3, 9, 2, 9, 1, 9, 0, 9};  // (3 columns, 2 sequences), every other
  CachePages pages = pages_of(2, 6, table, 3);
  pages.stride_sequence = 2;
  pages.stride_page = 4;
  EXPECT_EQ(KeyRows::of(pages, 0, 0, 0).at(5).batch, 1);
  EXPECT_EQ(KeyRows::of(pages, 1, 1, 0).at(5).batch, 0);
  pages.table += 10;
  pages.stride_page = -4;
  pages.stride_sequence = -2;
  EXPECT_EQ(KeyRows::of(pages, 0, 0, 0).at(2).batch, 2);
  EXPECT_EQ(KeyRows::of(pages, 1, 1, 0).at(2).batch, 3);
}

TEST(CachePages, ThePlaceOfAFarKey) {
  const std::vector<std::int32_t> table(1 << 14, 7);
  const CachePages pages = pages_of(1 << 16, 8, table, 1 << 14);
  EXPECT_EQ(pages.room(0), std::int64_t{1} << 30);
  const KeyPlace last = KeyRows::of(pages, 0, 0, 0).at((std::int64_t{1} << 30) - 1);
  EXPECT_EQ(last.batch, 7);
  EXPECT_EQ(last.row, (1 << 16) - 1);
}

TEST(KeyRows, WithoutPagesKeysFollowEachOther) {
  const KeyRows rows = KeyRows::of({}, 3, 2, 40);
  for (std::int64_t j = 0; j < 5; ++j) {
    EXPECT_EQ(rows.at(j).batch, 2);
    EXPECT_EQ(rows.at(j).row, 40 + j);
  }
}

TEST(NewKeys, AreTheLastOfThoseThatCount) {
  const std::vector<std::int32_t> table{4, -1, 2};
  const CachePages pages = pages_of(4, 5, table, 3);
  for (const bool paged : {false, true}) {
    const KeyRows keys = KeyRows::of(paged ? pages : CachePages{}, 0, 0, 0);
    for (std::int64_t used = -3; used <= 20; ++used)
      for (std::int64_t rows = 0; rows <= 14; ++rows) {
        const NewKeys fresh = NewKeys::of(keys, 12, used, rows, 2);
        for (std::int64_t i = 0; i < rows; ++i) {
          const std::int64_t key = used - rows + i;
          const bool inside = key >= 0 && key < 12 && !(paged && key / 4 == 1);
          ASSERT_EQ(fresh.at(i).exists(), inside) << used << " " << rows << " " << i;
          ASSERT_EQ(fresh.position(i), key - 2);
          if (!inside) continue;
          ASSERT_EQ(fresh.at(i).batch, paged ? table[static_cast<std::size_t>(key / 4)] : 0);
          ASSERT_EQ(fresh.at(i).row, paged ? key % 4 : key);
        }
      }
  }
  // The ends of what an int32 can say.
  EXPECT_FALSE(NewKeys::of(KeyRows::of(pages, 0, 0, 0), 12, INT32_MIN, 1 << 30, INT32_MAX).at(0).exists());
  EXPECT_FALSE(NewKeys::of(KeyRows::of(pages, 0, 0, 0), 12, INT32_MAX, 1, INT32_MIN).at(0).exists());
}

TEST(RotaryTable, ColumnsAndPositions) {
  const std::vector<float> numbers{1, 2, 3, 10, 20, 30, 4, 5, 6, 40, 50, 60};  // (2 positions, 2, 3 pairs)
  for (const bool pairs : {false, true}) {
    const RotaryTable table{numbers.data(), 6, 3, 1, 2, 6, pairs};
    std::vector<int> columns(6);
    for (std::int64_t i = 0; i < 3; ++i) {
      ++columns[static_cast<std::size_t>(table.first_column(i))];
      ++columns[static_cast<std::size_t>(table.second_column(i))];
      EXPECT_EQ(table.second_column(i) - table.first_column(i), pairs ? 1 : 3);
      for (const std::int64_t position : {-5, 0, 1, 2, 99}) {
        const RotaryTable::Turn turn = table.at(position, i);
        EXPECT_EQ(turn.cosine, static_cast<float>(i + (position > 0 ? 4 : 1)));
        EXPECT_EQ(turn.sine, 10 * turn.cosine);
      }
    }
    EXPECT_EQ(columns, std::vector<int>(6, 1));
  }
  const RotaryTable::Turn quarter{0, 1};
  EXPECT_EQ(quarter.first(3.F, 5.F), -5.F);
  EXPECT_EQ(quarter.second(3.F, 5.F), 3.F);
}

}  // namespace
}  // namespace falchion::testing
