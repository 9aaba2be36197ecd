// tests/layout_algebra_test.cpp: compares the algebra of src/layout with CuTe's documentation and with what CuTe itself
// prints. The suites Vector01 to Vector16, here and in the other tests of layouts, check what tutorials on CuTe print
// and draw.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layout/parse.hpp"

namespace falchion::layout {
namespace {

Layout of(const std::string& text) { return parse_layout(text).layout; }
Layout fixed(const std::string& text) { return parse_layout(text, {}, true).layout; }
std::string composed(const std::string& a, const std::string& b) { return to_string(composition(of(a), of(b))); }
std::string complemented(const std::string& a) { return to_string(complement(fixed(a), Int{24})); }

std::vector<std::int64_t> row(const Composed& a, std::int64_t m, std::int64_t step) {
  std::vector<std::int64_t> out;
  for (std::int64_t n = 0; n < a.layout.mode(1).size(); n += step) {
    out.push_back(a(IntTuple({IntTuple(Int{m}), IntTuple(Int{n})})));
  }
  return out;
}

using Offsets = std::vector<std::int64_t>;

TEST(Vector01, PrintsATensorAsCuTeDoes) {
  EXPECT_EQ(print_tensor(parse_layout("(4,8):(8,1)"), 32),
            "ptr[32b](0x...) o (4,8):(8,1):\n"
            "    0    1    2    3    4    5    6    7\n"
            "    8    9   10   11   12   13   14   15\n"
            "   16   17   18   19   20   21   22   23\n"
            "   24   25   26   27   28   29   30   31\n");
}

TEST(Vector01, PrintsALayoutAsCuTeDoes) {
  EXPECT_EQ(print_layout(parse_layout("(4,8):(8,1)")),
            "(4,8):(8,1)\n"
            "       0    1    2    3    4    5    6    7 \n"
            "    +----+----+----+----+----+----+----+----+\n"
            " 0  |  0 |  1 |  2 |  3 |  4 |  5 |  6 |  7 |\n"
            "    +----+----+----+----+----+----+----+----+\n"
            " 1  |  8 |  9 | 10 | 11 | 12 | 13 | 14 | 15 |\n"
            "    +----+----+----+----+----+----+----+----+\n"
            " 2  | 16 | 17 | 18 | 19 | 20 | 21 | 22 | 23 |\n"
            "    +----+----+----+----+----+----+----+----+\n"
            " 3  | 24 | 25 | 26 | 27 | 28 | 29 | 30 | 31 |\n"
            "    +----+----+----+----+----+----+----+----+\n");
}

TEST(LayoutPrint, SeparatesTheMatricesOfRankThree) {
  EXPECT_EQ(print_tensor(parse_layout("(1,2,2):(1,1,2)"), 32),
            "ptr[32b](0x...) o (1,2,2):(1,1,2):\n"
            "    0    1\n"
            "----------\n"
            "    2    3\n");
}

TEST(LayoutPrint, ShowsAPointersSwizzleInElements) {
  const std::string text = print_layout(parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"));
  EXPECT_EQ(text.substr(0, text.find('\n')), "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  const std::string none = print_layout(parse_layout("Sw<0,4,3> o smem_ptr[16b](unset) o (_8,_8):(_8,_1)"));
  EXPECT_EQ(none.substr(0, none.find('\n')), "(_8,_8):(_8,_1)");
}

TEST(LayoutPrint, RefusesWhatIsTooLarge) {
  EXPECT_THROW(print_layout(parse_layout("(4096,4096)")), Error);
  EXPECT_THROW(print_tensor(parse_layout("(4096,4096)"), 32), Error);
  EXPECT_THROW(print_layout(parse_layout("8:1")), Error);
}

TEST(Vector02, CutsTheTilesOfAMatrix) {
  const Layout a = of("(4,8):(1,4)");
  EXPECT_EQ(print_tensor({false, {}, {}, 0, a}, 32),
            "ptr[32b](0x...) o (4,8):(1,4):\n"
            "    0    4    8   12   16   20   24   28\n"
            "    1    5    9   13   17   21   25   29\n"
            "    2    6   10   14   18   22   26   30\n"
            "    3    7   11   15   19   23   27   31\n");
  const IntTuple tile = parse_int_tuple("(2,2)");
  const std::vector<std::pair<std::string, Offsets>> tiles{
      {"(0,0)", {0, 1, 4, 5}}, {"(0,1)", {8, 9, 12, 13}}, {"(1,0)", {2, 3, 6, 7}}};
  for (const auto& [coord, offsets] : tiles) {
    const Slice part = local_tile(a, tile, parse_int_tuple(coord));
    EXPECT_EQ(to_string(part.layout), "(2,2):(1,4)") << coord;
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(part.offset_of + part.layout(i), offsets[i]) << coord;
  }
}

TEST(Vector04, FollowsItsStrides) {
  const std::vector<std::pair<std::string, std::vector<Offsets>>> grids{
      {"(4,2):(1,4)", {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
      {"(4,2):(2,1)", {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
      {"(2,4):(12,1)", {{0, 1, 2, 3}, {12, 13, 14, 15}}}};  // CuTe's documentation calls this layout s2xd4_a.
  for (const auto& [text, rows] : grids) {
    for (std::size_t m = 0; m < rows.size(); ++m) {
      EXPECT_EQ(row(parse_layout(text), static_cast<std::int64_t>(m), 1), rows[m]) << text;
    }
  }
  EXPECT_EQ(to_string(make_layout(parse_int_tuple("(2,(3,4),_5)"))), "(2,(3,4),_5):(_1,(2,6),24)");
  EXPECT_EQ(of("(2,4):(12,1)").cosize(), 16);
  EXPECT_FALSE(congruent(parse_int_tuple("(2,2)"), parse_int_tuple("(3)")));
  EXPECT_THROW(of("(2,2):(3)"), Error);
}

TEST(Vector05, CoordinatesAreOneTwoOrNatural) {
  const IntTuple shape = parse_int_tuple("(3,(2,3))");
  const std::vector<std::string> natural{"(0,(0,0))", "(1,(0,0))", "(2,(0,0))", "(0,(1,0))", "(1,(1,0))", "(2,(1,0))",
                                         "(0,(0,1))", "(1,(0,1))", "(2,(0,1))", "(0,(1,1))", "(1,(1,1))", "(2,(1,1))",
                                         "(0,(0,2))", "(1,(0,2))", "(2,(0,2))", "(0,(1,2))", "(1,(1,2))", "(2,(1,2))"};
  for (std::int64_t i = 0; i < 18; ++i) {
    EXPECT_EQ(to_string(idx2crd(i, shape)), natural[i]);
    EXPECT_EQ(crd2idx(parse_int_tuple(natural[i]), shape), i);
    const IntTuple flat({IntTuple(Int{i % 3}), IntTuple(Int{i / 3})});
    EXPECT_EQ(crd2idx(flat, shape), i);
  }
  EXPECT_THROW(crd2idx(parse_int_tuple("(1,1,1)"), shape), Error);
}

TEST(Vector06, PartitionOfSgemm) {
  const Layout threads = of("(_32,_8):(_1,_32)");
  EXPECT_EQ(
      to_string(local_tile(of("(5120,4096):(_1,5120)"), parse_int_tuple("(_128,_8)"), parse_int_tuple("(0,_)")).layout),
      "(_128,_8,512):(_1,5120,40960)");
  const Slice global = local_partition(of("(_128,_8,512):(_1,5120,40960)"), threads, 33);
  EXPECT_EQ(to_string(global.layout), "(_4,_1,512):(_32,_0,40960)");
  EXPECT_EQ(global.offset_of, 1 + 5120);
  EXPECT_EQ(to_string(local_partition(of("(_128,_8):(_1,_128)"), threads, 0).layout), "(_4,_1):(_32,_0)");
  EXPECT_EQ(to_string(local_partition(of("(_128,_8):(_1,_128)"), of("(_16):(_1)"), 0).layout), "(_8,_8):(_16,_128)");
  const Slice c = local_partition(of("(_128,_128):(_1,5120)"), of("(_16,_16):(_1,_16)"), 37);
  EXPECT_EQ(to_string(c.layout.shape), "(_8,_8)");
  EXPECT_EQ(c.offset_of, 5 + 2 * 5120);
  // These are the partitions as the tutorial draws them: C is (8,8), A and B are (8,4), there are 4 x 4 threads, and a
  // row of threads shares A while a column shares B.
  EXPECT_EQ(to_string(local_partition(of("(_8,_4):(_1,_8)"), of("(_4):(_1)"), 0).layout.shape), "(_2,_4)");
  EXPECT_EQ(to_string(local_partition(of("(_8,_8):(_1,_8)"), of("(_4,_4):(_1,_4)"), 0).layout.shape), "(_2,_2)");
}

// The following tests check those pictures of the same tutorial that show layouts. (One picture shows the software
// pipeline over time. The roofline plot is checked in roofline_test.)
TEST(Vector07, BlocksOfCAndStepsOfK) {
  const Layout c = divide(DivideKind::zipped, of("(5120,5120):(_1,5120)"), parse_tiler("(_128,_128)"));
  EXPECT_EQ(to_string(c), "((_128,_128),(40,40)):((_1,5120),(_128,655360))");
  const Layout a = divide(DivideKind::zipped, of("(5120,4096):(_1,5120)"), parse_tiler("(_128,_8)"));
  EXPECT_EQ(to_string(a), "((_128,_8),(40,512)):((_1,5120),(_128,40960))");
  EXPECT_EQ(to_string(divide(DivideKind::logical, of("4096:1"), parse_tiler("_8"))), "(_8,512):(1,8)");
}

/// Block i of 4 x 4 blocks stands at m + 4 n. So the order of the blocks is a layout too.
TEST(Vector07, OrdersOfTheBlocks) {
  using Places = std::vector<std::pair<std::int64_t, std::int64_t>>;
  const auto first_six = [](const std::string& text) {
    Places out;
    for (std::int64_t i = 0; i < 6; ++i) out.emplace_back(fixed(text)(i) % 4, fixed(text)(i) / 4);
    return out;
  };
  EXPECT_EQ(first_six("(4,4):(4,1)"), (Places{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}, {1, 1}}));
  EXPECT_EQ(first_six("(2,4,2):(1,4,2)"), (Places{{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}}));
  EXPECT_TRUE(is_injective(fixed("(2,4,2):(1,4,2)")));
}

TEST(Vector08, SwizzleXorsTheRowOntoTheColumnGroup) {
  const Composed a = parse_layout("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  EXPECT_EQ(to_string(a), "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  EXPECT_EQ(row(a, 0, 8), (Offsets{0, 8, 16, 24, 32, 40, 48, 56}));
  EXPECT_EQ(row(a, 1, 8), (Offsets{72, 64, 88, 80, 104, 96, 120, 112}));
  EXPECT_EQ(row(a, 2, 8), (Offsets{144, 152, 128, 136, 176, 184, 160, 168}));
  EXPECT_EQ(row(a, 7, 8), (Offsets{504, 496, 488, 480, 472, 464, 456, 448}));
  EXPECT_EQ(a(parse_int_tuple("(0,15)")), 15);
  for (std::int64_t n = 0; n < 8; ++n) {
    const auto at = [&](std::int64_t m, std::int64_t k) { return a(IntTuple({IntTuple(Int{m}), IntTuple(Int{k})})); };
    EXPECT_EQ(at(1, n), 72 + n);
    EXPECT_EQ(at(1, 8 + n), 64 + n);
    EXPECT_EQ(at(2, n), 144 + n);
    EXPECT_EQ(at(2, 16 + n), 128 + n);
  }
}

TEST(Vector14, ASwizzleOfBytesIsOneOfElements) {
  const Composed bytes = parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)");
  const Composed elements = parse_layout("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  for (std::int64_t i = 0; i < 512; ++i) EXPECT_EQ(bytes(i), elements(i));
  EXPECT_EQ(to_string(in_elements({3, 4, 3}, 8)), "Sw<3,4,3>");
  EXPECT_EQ(to_string(in_elements({2, 1, 3}, 32)), "Sw<1,0,3>");
}

TEST(LayoutSwizzle, BecomesStridesOfARow) {
  const Composed a = parse_layout("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  const ComposedSlice part = slice(a, parse_int_tuple("(1,_)"));
  EXPECT_EQ(to_string(part.layout), "((_8,_2,_2,_2)):((_1,-8,16,32))");
  EXPECT_EQ(part.offset_of, 72);
  for (std::int64_t n = 0; n < 64; ++n) {
    EXPECT_EQ(part.offset_of + part.layout(n), a(IntTuple({IntTuple(Int{1}), IntTuple(Int{n})})));
  }
}

TEST(Vector10, TileToShapeRepeatsTheAtom) {
  const Composed atom = parse_layout("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  const Composed q = tile_to_shape(atom, parse_int_tuple("(_128,_128)"), IntTuple());
  EXPECT_EQ(to_string(q), "Sw<3,3,3> o _0 o ((_8,_16),(_64,_2)):((_64,_512),(_1,_8192))");
  const Composed k = tile_to_shape(atom, parse_int_tuple("(_32,_128)"), IntTuple());
  EXPECT_EQ(to_string(k.layout), "((_8,_4),(_64,_2)):((_64,_512),(_1,_2048))");
  for (std::int64_t m = 0; m < 128; m += 7) {
    for (std::int64_t n = 0; n < 128; n += 5) {
      const std::int64_t linear = 64 * (m % 8) + 512 * (m / 8) + n % 64 + 8192 * (n / 64);
      EXPECT_EQ(q.layout(IntTuple({IntTuple(Int{m}), IntTuple(Int{n})})), linear);
    }
  }
  EXPECT_THROW(tile_to_shape(atom, parse_int_tuple("(_100,_128)"), IntTuple()), Error);
}

TEST(Vector15, CompositionEqualsTheDocumentation) {
  EXPECT_EQ(composed("(_6,_2):(_8,_2)", "(_4,_3):(_3,_1)"), "((_2,_2),_3):((_24,_2),_8)");
  EXPECT_EQ(composed("20:2", "(5,4):(4,1)"), "(5,4):(8,2)");
  EXPECT_EQ(composed("(_10,_2):(_16,_4)", "(_5,_4):(_1,_5)"), "(_5,(_2,_2)):(_16,(_80,_4))");
}

TEST(Vector15, CompositionOfDynamicLayoutsIsNotSimplified) {
  EXPECT_EQ(composed("(10,2):(16,4)", "(5,4):(1,5)"), "((5,1),(2,2)):((16,4),(80,4))");
}

TEST(LayoutComposition, RefusesWhatDoesNotDivide) {
  EXPECT_THROW(composed("(_6,_2):(_8,_2)", "_2:_9"), Error);
  EXPECT_THROW(composed("(_4,_2):(_8,_2)", "_6:_1"), Error);
  EXPECT_THROW(composition(of("(4,2)"), parse_tiler("<2,1,2>")), Error);
}

TEST(Vector15, ComplementEqualsTheDocumentation) {
  EXPECT_EQ(complemented("4:1"), "_6:_4");
  EXPECT_EQ(complemented("6:4"), "_4:_1");
  EXPECT_EQ(complemented("(4,6):(1,4)"), "_1:_0");
  EXPECT_EQ(complemented("4:2"), "(_2,_3):(_1,_8)");
  EXPECT_EQ(complemented("(2,4):(1,6)"), "_3:_2");
  EXPECT_EQ(complemented("(2,2):(1,6)"), "(_3,_2):(_2,_12)");
  EXPECT_THROW(complemented("(4,4):(1,2)"), Error);
  EXPECT_THROW(complement(of("(4,4):(1,4)"), Int{24}), Error);
}

TEST(Vector15, DivideEqualsTheDocumentation) {
  const Tiler tiler = parse_tiler("<3:3,(2,4):(1,8)>", true);
  const Layout a = fixed("(9,(4,8)):(59,(13,1))");
  EXPECT_EQ(to_string(divide(DivideKind::logical, fixed("(4,2,3):(2,1,8)"), parse_tiler("4:2", true))),
            "((_2,_2),(_2,_3)):((_4,_1),(_2,_8))");
  EXPECT_EQ(to_string(divide(DivideKind::zipped, a, tiler)),
            "((_3,(_2,_4)),(_3,(_2,_2))):((_177,(_13,_2)),(_59,(_26,_1)))");
  EXPECT_EQ(to_string(divide(DivideKind::tiled, a, tiler)), "((_3,(_2,_4)),_3,(_2,_2)):((_177,(_13,_2)),_59,(_26,_1))");
  EXPECT_EQ(to_string(divide(DivideKind::flat, a, tiler)), "(_3,(_2,_4),_3,(_2,_2)):(_177,(_13,_2),_59,(_26,_1))");
}

TEST(Vector15, ProductEqualsTheDocumentation) {
  const Layout block = fixed("(2,5):(5,1)");
  const Tiler tiler = parse_tiler("(3,4):(1,3)", true);
  EXPECT_EQ(to_string(product(ProductKind::logical, fixed("(2,2):(4,1)"), parse_tiler("6:1", true))),
            "((_2,_2),(_2,_3)):((_4,_1),(_2,_8))");
  EXPECT_EQ(to_string(product(ProductKind::blocked, block, tiler)), "((_2,_3),(_5,_4)):((_5,_10),(_1,_30))");
  EXPECT_EQ(to_string(product(ProductKind::raked, block, tiler)), "((_3,_2),(_4,_5)):((_10,_5),(_30,_1))");
}

/// The tiles are 128 x 128, 32 x 128 and 32 x 128 elements of two bytes. A thread moves 16 bytes.
TEST(Vector13, SizesOfTheTiles) {
  const Composed atom = parse_layout("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  const auto bytes = [&](const std::string& shape) {
    return 2 * tile_to_shape(atom, parse_int_tuple(shape), IntTuple()).layout.cosize();
  };
  EXPECT_EQ(bytes("(_128,_128)"), 32768);
  EXPECT_EQ(bytes("(_32,_128)"), 8192);
  EXPECT_EQ(bytes("(_128,_128)") + 2 * bytes("(_32,_128)"), 49152);
  const std::int64_t a_load = 16 / 2, threads_a_row = atom.layout.mode(1).size() / a_load;
  EXPECT_EQ(a_load, 8);
  EXPECT_EQ(threads_a_row, 8);
}

/// The first product's accumulator, which stays in registers, is read as the second product's operand A, and as a
/// matrix of rows and columns.
TEST(Vector13, ReshapesOfTheAccumulator) {
  const Layout acc = of("((_2,_2),_2,_4):((_1,_2),_4,_8)");
  const Layout pairs = divide(DivideKind::logical, acc.mode(2), parse_tiler("_2"));
  const Layout as_a = make_layout({make_layout({acc.mode(0), pairs.mode(0)}), acc.mode(1), pairs.mode(1)});
  EXPECT_EQ(to_string(as_a), "(((_2,_2),_2),_2,_2):(((_1,_2),_8),_4,_16)");
  EXPECT_EQ(as_a.mode(0).size(), 8);  // The mode is (4,2).
  const Layout rows = make_layout({acc.mode(0).mode(1), acc.mode(1)}),
               columns = make_layout({acc.mode(0).mode(0), acc.mode(2)});
  EXPECT_EQ(to_string(make_layout({rows, columns})), "((_2,_2),(_2,_4)):((_2,_4),(_1,_8))");
}

/// CuTe defines the atoms of wgmma's shared memory in bits and recasts them to the element.
TEST(Vector14, TilesOfHopper) {
  struct Tile {
    const char* bits;
    int element;
    const char* print;
  };
  const Tile tiles[] = {
      {"Sw<3,4,3> o smem_ptr[1b](unset) o (_8,_1024):(_1024,_1)", 16,
       "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"},
      {"Sw<2,4,3> o smem_ptr[1b](unset) o (_8,_512):(_512,_1)", 16,
       "Sw<2,4,3> o smem_ptr[16b](unset) o (_8,_32):(_32,_1)"},
      {"Sw<1,4,3> o smem_ptr[1b](unset) o (_8,_256):(_256,_1)", 16,
       "Sw<1,4,3> o smem_ptr[16b](unset) o (_8,_16):(_16,_1)"},
      {"Sw<0,4,3> o smem_ptr[1b](unset) o (_8,_128):(_128,_1)", 16,
       "Sw<0,4,3> o smem_ptr[16b](unset) o (_8,_8):(_8,_1)"},
      {"Sw<3,4,3> o smem_ptr[1b](unset) o (_1024,_8):(_1,_1024)", 16,
       "Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_8):(_1,_64)"},
      {"Sw<3,4,3> o smem_ptr[1b](unset) o (_8,_1024):(_1024,_1)", 8,
       "Sw<3,4,3> o smem_ptr[8b](unset) o (_8,_128):(_128,_1)"},
  };
  for (const Tile& tile : tiles) {
    EXPECT_EQ(to_string(recast(parse_layout(tile.bits), 1, tile.element)), tile.print);
    EXPECT_EQ(to_string(parse_layout(tile.print)), tile.print);
  }
}

TEST(LayoutCoalesce, MergesOnlyWhatIsKnown) {
  EXPECT_EQ(to_string(coalesce(of("(_2,(_1,_6)):(_1,(_6,_2))"))), "_12:_1");
  EXPECT_EQ(to_string(coalesce(of("(2,(1,6)):(1,(6,2))"))), "(2,1,6):(1,6,2)");
  EXPECT_EQ(to_string(coalesce_by_mode(of("(_2,(_1,_6)):(_1,(_6,_2))"))), "(_2,_6):(_1,_2)");
}

TEST(LayoutInverse, UndoesTheLayout) {
  const Layout a = of("(_4,_8):(_8,_1)");
  EXPECT_EQ(to_string(right_inverse(a)), "(_8,_4):(_4,_1)");
  const Layout inverse = left_inverse(a);
  for (std::int64_t i = 0; i < 32; ++i) EXPECT_EQ(inverse(a(i)), i);
  EXPECT_THROW(left_inverse(of("(4,8):(8,1)")), Error);
}

TEST(LayoutRecast, ScalesStridesAndSwizzle) {
  EXPECT_EQ(to_string(recast(of("(_8,_64):(_64,_1)"), 16, 8)), "(_8,_128):(_128,_1)");
  EXPECT_EQ(to_string(recast(parse_layout("Sw<3,4,3> o _0 o (_8,_128):(_128,_1)"), 8, 16)),
            "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  EXPECT_EQ(to_string(recast(parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"), 16, 8)),
            "Sw<3,4,3> o smem_ptr[8b](unset) o (_8,_128):(_128,_1)");
  EXPECT_THROW(recast(of("(8,64):(64,1)"), 16, 8), Error);
}

TEST(LayoutFacts, AreCounted) {
  EXPECT_TRUE(is_injective(of("(4,8):(8,1)")));
  EXPECT_FALSE(is_injective(of("(4,8):(1,2)")));
  EXPECT_FALSE(is_injective(of("(4,2):(1,0)")));
  EXPECT_EQ(contiguous_elements(parse_layout("(8,64):(64,1)")), 512);
  EXPECT_EQ(contiguous_elements(parse_layout("(8,64):(72,1)")), 64);
  EXPECT_EQ(contiguous_elements(parse_layout("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)")), 8);
  EXPECT_TRUE(compatible(parse_int_tuple("24"), parse_int_tuple("(24)")));
  EXPECT_FALSE(compatible(parse_int_tuple("(24)"), parse_int_tuple("24")));
  EXPECT_TRUE(compatible(parse_int_tuple("(24)"), parse_int_tuple("((4,6))")));
}

TEST(LayoutFacts, OverflowIsAnError) {
  const Layout a{Int{std::int64_t{1} << 39}, Int{std::int64_t{1} << 39}};
  EXPECT_THROW(a.cosize(), Error);
  EXPECT_THROW(a(std::int64_t{1} << 38), Error);
}

}  // namespace
}  // namespace falchion::layout
