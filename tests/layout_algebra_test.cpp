// tests/layout_algebra_test.cpp: src/layout's algebra against the vectors of CuTe's documentation and of CuTe's own
// prints.
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

TEST(LayoutPrint, PrintsATensorAsCuTeDoes) {
  EXPECT_EQ(print_tensor(parse_layout("(4,8):(8,1)"), 32),
            "ptr[32b](0x...) o (4,8):(8,1):\n"
            "    0    1    2    3    4    5    6    7\n"
            "    8    9   10   11   12   13   14   15\n"
            "   16   17   18   19   20   21   22   23\n"
            "   24   25   26   27   28   29   30   31\n");
}

TEST(LayoutPrint, PrintsALayoutAsCuTeDoes) {
  EXPECT_EQ(print_layout(parse_layout("(2,8):(8,1)")),
            "(2,8):(8,1)\n"
            "       0    1    2    3    4    5    6    7 \n"
            "    +----+----+----+----+----+----+----+----+\n"
            " 0  |  0 |  1 |  2 |  3 |  4 |  5 |  6 |  7 |\n"
            "    +----+----+----+----+----+----+----+----+\n"
            " 1  |  8 |  9 | 10 | 11 | 12 | 13 | 14 | 15 |\n"
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

TEST(LayoutTile, CutsTheTilesOfAMatrix) {
  const Layout a = of("(4,8):(1,4)");
  const IntTuple tile = parse_int_tuple("(2,2)");
  const std::vector<std::pair<std::string, Offsets>> tiles{
      {"(0,0)", {0, 1, 4, 5}}, {"(0,1)", {8, 9, 12, 13}}, {"(1,0)", {2, 3, 6, 7}}};
  for (const auto& [coord, offsets] : tiles) {
    const Slice part = local_tile(a, tile, parse_int_tuple(coord));
    EXPECT_EQ(to_string(part.layout), "(2,2):(1,4)") << coord;
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(part.offset_of + part.layout(i), offsets[i]) << coord;
  }
}

TEST(LayoutEvaluate, FollowsItsStrides) {
  const Layout left = of("(4,2):(1,4)"), right = of("(4,2):(2,1)");
  EXPECT_EQ(row({false, {}, {}, 0, left}, 1, 1), (Offsets{1, 5}));
  EXPECT_EQ(row({false, {}, {}, 0, right}, 1, 1), (Offsets{2, 3}));
  EXPECT_EQ(to_string(make_layout(parse_int_tuple("(2,(3,4),_5)"))), "(2,(3,4),_5):(_1,(2,6),24)");
  EXPECT_EQ(of("(2,4):(12,1)").cosize(), 16);
}

TEST(LayoutCoordinates, AreOneTwoOrNatural) {
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

TEST(LayoutPartition, OfSgemmEqualsCuTes) {
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
}

TEST(LayoutSwizzle, XorsTheRowOntoTheColumnGroup) {
  const Composed a = parse_layout("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  EXPECT_EQ(to_string(a), "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  EXPECT_EQ(row(a, 0, 8), (Offsets{0, 8, 16, 24, 32, 40, 48, 56}));
  EXPECT_EQ(row(a, 1, 8), (Offsets{72, 64, 88, 80, 104, 96, 120, 112}));
  EXPECT_EQ(row(a, 2, 8), (Offsets{144, 152, 128, 136, 176, 184, 160, 168}));
  EXPECT_EQ(row(a, 7, 8), (Offsets{504, 496, 488, 480, 472, 464, 456, 448}));
  EXPECT_EQ(a(parse_int_tuple("(0,15)")), 15);
  EXPECT_EQ(a(parse_int_tuple("(1,15)")), 71);
  EXPECT_EQ(a(parse_int_tuple("(2,16)")), 128);
}

TEST(LayoutSwizzle, OfBytesIsOneOfElements) {
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

TEST(LayoutTileToShape, RepeatsTheAtom) {
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

TEST(LayoutComposition, EqualsTheDocumentation) {
  EXPECT_EQ(composed("(_6,_2):(_8,_2)", "(_4,_3):(_3,_1)"), "((_2,_2),_3):((_24,_2),_8)");
  EXPECT_EQ(composed("20:2", "(5,4):(4,1)"), "(5,4):(8,2)");
  EXPECT_EQ(composed("(_10,_2):(_16,_4)", "(_5,_4):(_1,_5)"), "(_5,(_2,_2)):(_16,(_80,_4))");
}

TEST(LayoutComposition, OfDynamicLayoutsIsNotSimplified) {
  EXPECT_EQ(composed("(10,2):(16,4)", "(5,4):(1,5)"), "((5,1),(2,2)):((16,4),(80,4))");
}

TEST(LayoutComposition, RefusesWhatDoesNotDivide) {
  EXPECT_THROW(composed("(_6,_2):(_8,_2)", "_2:_9"), Error);
  EXPECT_THROW(composed("(_4,_2):(_8,_2)", "_6:_1"), Error);
  EXPECT_THROW(composition(of("(4,2)"), parse_tiler("<2,1,2>")), Error);
}

TEST(LayoutComplement, EqualsTheDocumentation) {
  EXPECT_EQ(complemented("4:1"), "_6:_4");
  EXPECT_EQ(complemented("6:4"), "_4:_1");
  EXPECT_EQ(complemented("(4,6):(1,4)"), "_1:_0");
  EXPECT_EQ(complemented("4:2"), "(_2,_3):(_1,_8)");
  EXPECT_EQ(complemented("(2,4):(1,6)"), "_3:_2");
  EXPECT_EQ(complemented("(2,2):(1,6)"), "(_3,_2):(_2,_12)");
  EXPECT_THROW(complemented("(4,4):(1,2)"), Error);
  EXPECT_THROW(complement(of("(4,4):(1,4)"), Int{24}), Error);
}

TEST(LayoutDivide, EqualsTheDocumentation) {
  const Tiler tiler = parse_tiler("<3:3,(2,4):(1,8)>", true);
  const Layout a = fixed("(9,(4,8)):(59,(13,1))");
  EXPECT_EQ(to_string(divide(DivideKind::logical, fixed("(4,2,3):(2,1,8)"), parse_tiler("4:2", true))),
            "((_2,_2),(_2,_3)):((_4,_1),(_2,_8))");
  EXPECT_EQ(to_string(divide(DivideKind::zipped, a, tiler)),
            "((_3,(_2,_4)),(_3,(_2,_2))):((_177,(_13,_2)),(_59,(_26,_1)))");
  EXPECT_EQ(to_string(divide(DivideKind::tiled, a, tiler)), "((_3,(_2,_4)),_3,(_2,_2)):((_177,(_13,_2)),_59,(_26,_1))");
  EXPECT_EQ(to_string(divide(DivideKind::flat, a, tiler)), "(_3,(_2,_4),_3,(_2,_2)):(_177,(_13,_2),_59,(_26,_1))");
}

TEST(LayoutProduct, EqualsTheDocumentation) {
  const Layout block = fixed("(2,5):(5,1)");
  const Tiler tiler = parse_tiler("(3,4):(1,3)", true);
  EXPECT_EQ(to_string(product(ProductKind::logical, fixed("(2,2):(4,1)"), parse_tiler("6:1", true))),
            "((_2,_2),(_2,_3)):((_4,_1),(_2,_8))");
  EXPECT_EQ(to_string(product(ProductKind::blocked, block, tiler)), "((_2,_3),(_5,_4)):((_5,_10),(_1,_30))");
  EXPECT_EQ(to_string(product(ProductKind::raked, block, tiler)), "((_3,_2),(_4,_5)):((_10,_5),(_30,_1))");
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
