// tests/layout_banks_test.cpp: tests the model of the banks on a table of bank conflicts. bench/bank_probe.py compares
// the same table with ncu's counters.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layout/banks.hpp"
#include "layout/parse.hpp"

namespace falchion::layout {
namespace {

const char* const kRowMajor = "(128,128):(128,1)";
const char* const kSwizzled = "Sw<3,3,3> o _0 o ((_8,_16),(_64,_2)):((_64,_512),(_1,_8192))";
const char* const kPadded = "(128,128):(136,1)";

struct Row {
  const char *name, *layout;
  int bits;
  const char* access;
  AccessTile tile;
  int wavefronts, ideal;
};

const Row kRows[] = {
    {"ldmatrix, plain", kRowMajor, 16, "ldmatrix.x4", {16, 16}, 32, 4},
    {"ldmatrix, an unswizzled panel", "(128,64):(64,1)", 16, "ldmatrix.x4", {16, 16}, 32, 4},
    {"ldmatrix, swizzled", kSwizzled, 16, "ldmatrix.x4", {16, 16}, 4, 4},
    {"ldmatrix, the second page", kSwizzled, 16, "ldmatrix.x4.trans", {16, 16, 112, 96}, 4, 4},
    {"ldmatrix, padded", kPadded, 16, "ldmatrix.x4", {16, 16}, 4, 4},
    {"ldmatrix, two matrices", kRowMajor, 16, "ldmatrix.x2", {16, 8}, 16, 2},
    {"ldmatrix, one matrix", kRowMajor, 16, "ldmatrix.x1", {8, 8}, 8, 1},
    {"store, 8 threads a row, plain", kRowMajor, 16, "sts128", {4, 64}, 4, 4},
    {"store, 8 threads a row, swizzled", kSwizzled, 16, "sts128", {4, 64}, 4, 4},
    {"store, 8 threads a row, padded", kPadded, 16, "sts128", {4, 64}, 4, 4},
    {"cp.async, 8 threads a row, plain", kRowMajor, 16, "cp.async16", {4, 64}, 4, 4},
    {"cp.async, 8 threads a row, swizzled", kSwizzled, 16, "cp.async16", {4, 64}, 4, 4},
    {"cp.async, 8 threads a row, padded", kPadded, 16, "cp.async16", {4, 64}, 4, 4},
    {"cp.async, 16 threads a row, two pages", kSwizzled, 16, "cp.async16", {2, 128}, 4, 4},
    {"accumulator, plain", kRowMajor, 16, "sts32", {8, 8}, 8, 1},
    {"accumulator, swizzled", kSwizzled, 16, "sts32", {8, 8}, 1, 1},
    {"accumulator, padded", kPadded, 16, "sts32", {8, 8}, 1, 1},
    {"a panel of 32, plain", "(8,32):(32,1)", 16, "ldmatrix.x4", {8, 32}, 16, 4},
    {"a panel of 32, Sw<2,3,3>", "Sw<2,3,3> o _0 o (_8,_32):(_32,_1)", 16, "ldmatrix.x4", {8, 32}, 4, 4},
    {"a panel of 32, Sw<3,3,3>", "Sw<3,3,3> o _0 o (_8,_32):(_32,_1)", 16, "ldmatrix.x4", {8, 32}, 4, 4},
    {"f32 column, plain", "(32,32):(32,1)", 32, "lds32", {32, 1}, 32, 1},
    {"f32 column, padded", "(32,32):(33,1)", 32, "lds32", {32, 1}, 1, 1},
    {"f32 column, swizzled", "Sw<5,0,5> o _0 o (_32,_32):(_32,_1)", 32, "lds32", {32, 1}, 1, 1},
    {"8 bytes a thread", "(1,64):(64,1)", 32, "lds64", {1, 64}, 2, 2},
    {"16 bytes a thread", "(1,128):(128,1)", 32, "lds128", {1, 128}, 4, 4},
    {"neighbours on the same banks", "((2,8,2),4):((32,4,64),1)", 32, "lds128", {32, 4}, 8, 4},
    {"Hopper's K tile", "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)", 16, "ldmatrix.x4", {8, 32}, 4, 4},
};

TEST(Vector16, WavefrontsOfEveryAccess) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    const Access* access = find_access(row.access);
    ASSERT_NE(access, nullptr);
    const Wavefronts w =
        count_wavefronts(*access, tile_addresses(*access, parse_layout(row.layout, {}, true), row.bits, row.tile));
    EXPECT_EQ(w.wavefronts, row.wavefronts);
    EXPECT_EQ(w.ideal, row.ideal);
    EXPECT_EQ(w.conflicts(), row.wavefronts - row.ideal);
    ASSERT_EQ(w.words_a_bank.size(), static_cast<std::size_t>(row.ideal));
    for (const auto& phase : w.words_a_bank) EXPECT_EQ(phase.size(), 32u);
  }
}

// These are the first banks of each group of 8 columns of 2-byte elements, one row of Sw<3,3,3> o (8,64):(64,1) a line.
TEST(Vector09, TheBanksOfTheSwizzledPanel) {
  const std::vector<std::vector<int>> first = {{0, 4, 8, 12, 16, 20, 24, 28}, {4, 0, 12, 8, 20, 16, 28, 24},
                                               {8, 12, 0, 4, 24, 28, 16, 20}, {12, 8, 4, 0, 28, 24, 20, 16},
                                               {16, 20, 24, 28, 0, 4, 8, 12}, {20, 16, 28, 24, 4, 0, 12, 8},
                                               {24, 28, 16, 20, 8, 12, 0, 4}, {28, 24, 20, 16, 12, 8, 4, 0}};
  const Composed swizzled = parse_layout("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  const Composed plain = parse_layout("(_8,_64):(_64,_1)");
  for (std::int64_t row = 0; row < 8; ++row) {
    for (std::int64_t group = 0; group < 8; ++group) {
      // One thread asks for 4 bytes there and touches that bank alone.
      const AccessTile tile{1, 2, row, group * 8};
      const auto banks = [&](const Composed& layout) {
        const auto bytes = tile_addresses(Access::lds32, layout, 16, tile);
        EXPECT_EQ(bytes.size(), 1u);
        const Wavefronts w = count_wavefronts(Access::lds32, bytes);
        std::vector<int> touched;
        for (int bank = 0; bank < 32; ++bank)
          if (w.words_a_bank[0][static_cast<std::size_t>(bank)]) touched.push_back(bank);
        return touched;
      };
      EXPECT_EQ(banks(swizzled),
                std::vector<int>{first[static_cast<std::size_t>(row)][static_cast<std::size_t>(group)]});
      EXPECT_EQ(banks(plain), std::vector<int>{static_cast<int>(group * 4)});
    }
  }
}

TEST(LayoutBanks, ThreadsThatWantTheSameWordShareIt) {
  EXPECT_EQ(count_wavefronts(Access::lds32, std::vector<std::int64_t>(32, 400)).wavefronts, 1);
  std::vector<std::int64_t> halves;  // Half of the lanes want one word of a bank, and half want another.
  for (int t = 0; t < 32; ++t) halves.push_back(t % 2 * 128);
  EXPECT_EQ(count_wavefronts(Access::sts32, halves).wavefronts, 2);
  EXPECT_EQ(count_wavefronts(Access::lds32, halves).words_a_bank[0][0], 2);
  EXPECT_EQ(count_wavefronts(Access::lds32, halves).words_a_bank[0][1], 0);
}

// Accesses to the same banks in different phases do not conflict. A model without phases would call these "4 ways".
TEST(LayoutBanks, PhasesAreServedOneAfterTheOther) {
  std::vector<std::int64_t> bytes;
  for (int t = 0; t < 32; ++t) bytes.push_back(t % 8 * 16 + t / 8 * 128);
  EXPECT_EQ(count_wavefronts(Access::lds128, bytes).conflicts(), 0);
  bytes.clear();
  for (int t = 0; t < 32; ++t) bytes.push_back(t % 16 * 8 + t / 16 * 128);
  EXPECT_EQ(count_wavefronts(Access::lds64, bytes).wavefronts, 2);
  EXPECT_EQ(count_wavefronts(Access::lds64, bytes).conflicts(), 0);
}

TEST(LayoutBanks, MatricesThatGiveNoRowsDoNotCount) {
  std::vector<std::int64_t> bytes;
  for (int t = 0; t < 32; ++t) bytes.push_back(t < 8 ? t * 16 : 0);
  EXPECT_EQ(count_wavefronts(Access::ldmatrix_x1, bytes).wavefronts, 1);
  EXPECT_EQ(count_wavefronts(Access::ldmatrix_x1, bytes).words_a_bank.size(), 1u);
}

TEST(LayoutBanks, Names) {
  for (const char* name : {"lds32", "lds64", "lds128", "sts32", "sts64", "sts128", "cp.async16", "ldmatrix.x1",
                           "ldmatrix.x2", "ldmatrix.x4", "ldmatrix.x1.trans", "ldmatrix.x4.trans"})
    EXPECT_NE(find_access(name), nullptr) << name;
  for (const char* name : {"", ".trans", "lds", "lds128.trans", "ldmatrix", "ldmatrix.x8", "LDS32"})
    EXPECT_EQ(find_access(name), nullptr) << name;
  EXPECT_NE(access_names().find("ldmatrix.x4[.trans]"), std::string::npos);
}

TEST(LayoutBanks, RefusesWhatNoWarpCanDo) {
  EXPECT_THROW(count_wavefronts(Access::lds32, {}), Error);
  EXPECT_THROW(count_wavefronts(Access::lds32, std::vector<std::int64_t>(33, 0)), Error);
  EXPECT_THROW(count_wavefronts(Access::lds128, {8}), Error);  // This is not a multiple of 16.
  EXPECT_THROW(count_wavefronts(Access::lds32, {-4}), Error);
  EXPECT_THROW(count_wavefronts(Access::ldmatrix_x4, std::vector<std::int64_t>(8, 0)), Error);
  const Composed tile = parse_layout("(16,64):(64,1)"), columns = parse_layout("(64,16):(1,64)");
  EXPECT_THROW(tile_addresses(Access::ldmatrix_x4, tile, 16, {8, 8}), Error);          // These are not four matrices.
  EXPECT_THROW(tile_addresses(Access::ldmatrix_x4, tile, 16, {16, 16, 8, 0}), Error);  // This leaves the layout.
  EXPECT_THROW(tile_addresses(Access::lds32, tile, 16, {1, 3}), Error);                // This would be half a thread.
  EXPECT_THROW(tile_addresses(Access::lds32, tile, 4, {1, 8}), Error);                 // This would be half bytes.
  EXPECT_THROW(tile_addresses(Access::lds128, tile, 16, {8, 64}), Error);              // This would take 64 threads.
  EXPECT_THROW(tile_addresses(Access::lds32, tile, 16, {0, 2}), Error);
  EXPECT_THROW(tile_addresses(Access::lds32, tile, 16, {std::int64_t{1} << 60, 2}), Error);
  try {
    tile_addresses(Access::ldmatrix_x4, columns, 16, {16, 16});
    FAIL() << "a row of a column-major tile does not lie in one piece";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "access ldmatrix.x4: row 0: column 1 does not lie next to the one before it");
  }
}

}  // namespace
}  // namespace falchion::layout
