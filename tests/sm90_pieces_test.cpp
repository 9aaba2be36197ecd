// tests/sm90_pieces_test.cpp: tests the pieces in which Hopper's kind pages loads tiles of keys
// (src/sm90/attention_forward/pieces.hpp) against where each key lies.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sm90/attention_forward/pieces.hpp"

namespace falchion::testing {
namespace {

using sm90::KeyPiece, sm90::keys_of_piece, sm90::kLeastPiece;

TEST(Sm90Pieces, DivideAPageAndATile) {
  for (const int tile : {64, 128})
    for (std::int64_t page = 1; page <= 1024; ++page) {
      const int piece = keys_of_piece(page, tile);
      EXPECT_EQ(page % piece, 0) << page;
      EXPECT_EQ(tile % piece, 0) << page;
      EXPECT_TRUE(piece == tile || page % (2 * piece) != 0) << "half as many pieces would do: " << page;
    }
}

/// Two sequences of four pages each, of a pool of six. Some of the pages are not there.
std::vector<std::int32_t> table() { return {5, -1, 0, 2, 6, 3, INT32_MIN, 1}; }

CachePages pages_of(std::int64_t size, const std::vector<std::int32_t>& table) {
  return {.size = size,
          .count = 6,
          .table = table.data(),
          .stride_sequence = 4,
          .stride_page = 1,
          .columns = 4,
          .by_size = Divisor(size)};
}

/// Checks the tiles of a sequence key by key.
void check(const CachePages& pages, int b, int length, int tile) {
  const int keys = keys_of_piece(pages.size, tile);
  const KeyRows rows = KeyRows::of(pages, b, 0, 0);
  for (int first = 0; first < length; first += tile) {
    unsigned holes = 0;
    for (int i = 0; i < 32; ++i) {  // lanes
      const KeyPiece piece = KeyPiece::of(pages, b, 0, length, i, tile);
      const KeyRows::Look look = piece.look(first + piece.first);
      const int page = piece.page(look);
      holes |= piece.holes(first + piece.first, look);
      if (i * keys >= tile || first + i * keys >= length) {
        ASSERT_EQ(page, -1) << "there is nothing to read";
        continue;
      }
      ASSERT_EQ(piece.first, i * keys);
      for (int key = first + i * keys; key < first + (i + 1) * keys && key < length; ++key) {
        const KeyPlace place = rows.at(key);
        ASSERT_EQ(page, place.batch) << key;
        if (place.exists()) { ASSERT_EQ(static_cast<int>(look.row) + key - first - i * keys, place.row) << key; }
      }
    }
    for (int key = first; key < first + tile; ++key) {
      const bool hole = (holes >> (key - first) / kLeastPiece & 1U) != 0;
      ASSERT_EQ(hole, key < (length + keys - 1) / keys * keys && !rows.at(key).exists()) << key;
    }
  }
}

TEST(Sm90Pieces, EachKeyIsInItsSlot) {
  const std::vector<std::int32_t> ids = table();
  for (const std::int64_t size : {8, 16, 24, 48, 64, 96, 128, 256, 384})
    for (const int tile : {64, 128})
      for (int length = 0; length <= 4 * size; length += length < 300 ? 1 : 61)
        for (int b = 0; b < 2; ++b) check(pages_of(size, ids), b, length, tile);
}

/// The table ends with the sequence's last page: were a later one asked for, its id would count.
TEST(Sm90Pieces, TheTableIsNotAskedForMore) {
  const std::vector<std::int32_t> ids = {1, 2, 3, 4};
  for (const std::int64_t size : {16, 64})
    for (int length = 1; length <= 2 * size; ++length)
      for (int key = 0; key < 256 && key < 4 * size; key += static_cast<int>(size)) {
        const KeyPiece piece = KeyPiece::of(pages_of(size, ids), 0, 0, length, 0, 64);
        EXPECT_EQ(piece.page(piece.look(key)), key < length ? ids[static_cast<std::size_t>(key / size)] : -1);
        EXPECT_EQ(piece.holes(key, piece.look(key)), 0U);
      }
}

}  // namespace
}  // namespace falchion::testing
