// tests/layout_parse_test.cpp: what CuTe prints can be read back, and a mistake is reported with its place.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "layout/parse.hpp"

namespace falchion::layout {
namespace {

std::string again(const std::string& text) { return to_string(parse_layout(text)); }

/// Returns where an expression is refused, or -2 if it is not.
std::int64_t refused_at(const std::string& text) {
  try {
    parse_layout(text);
  } catch (const Error& error) { return error.position; }
  return -2;
}

std::string why(const std::string& text) {
  try {
    parse_layout(text);
  } catch (const Error& error) { return error.what(); }
  return "";
}

TEST(LayoutParse, ReadsBackWhatIsPrinted) {
  for (const char* text :
       {"(4,8):(8,1)", "8:1", "_8:_1", "(_8):(_1)", "((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))",
        "((_8,_1),8,2):((128,_0),_16,8192)", "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)",
        "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)", "Sw<0,4,3> o smem_ptr[8b](unset) o (_8,_8):(_8,_1)",
        "Sw<3,3,-3> o 16 o (_8,_64):(_64,_1)", "((_8,_2,_2,_2)):((_1,-8,_-16,32))",
        "((_8,_1),_2,((_2,_2),_2)):((_1,_0),_4096,((16,32),_8192))"}) {
    EXPECT_EQ(again(text), text);
  }
}

TEST(LayoutParse, KnowsShorthands) {
  EXPECT_EQ(again("(4,8)"), "(4,8):(_1,4)");
  EXPECT_EQ(again("(4,8):R"), "(4,8):(8,_1)");
  EXPECT_EQ(again("(4,8):L"), "(4,8):(_1,4)");
  EXPECT_EQ(again(" ( Int<4>{} , _8{} ) : ( Int<8> , _1 ) "), "(_4,_8):(_8,_1)");
  EXPECT_EQ(again("Sw<3,3,3> o (_8,_64):(_64,_1)"), "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  EXPECT_EQ(to_string(parse_layout("(4,8):(8,1)", {}, true)), "(_4,_8):(_8,_1)");
}

TEST(LayoutParse, ComposesRightToLeft) {
  EXPECT_EQ(again("(_6,_2):(_8,_2) o (_4,_3):(_3,_1)"), "((_2,_2),_3):((_24,_2),_8)");
  EXPECT_EQ(again("Sw<3,3,3> o _0 o (_8,_64):(_64,_1) o (_8,_8):(_8,_64)"), "Sw<3,3,3> o _0 o (_8,_8):(_1,_8)");
}

TEST(LayoutParse, LooksUpNames) {
  const Names names{{"sQ", parse_layout("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)")},
                    {"mma:SM80_16x8x16.C", parse_layout("((_4,_8),(_2,_2)):((_32,_1),(_16,_8))")}};
  EXPECT_EQ(to_string(parse_layout("sQ", names)), "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)");
  EXPECT_EQ(to_string(parse_layout("mma:SM80_16x8x16.C", names)), "((_4,_8),(_2,_2)):((_32,_1),(_16,_8))");
  EXPECT_EQ(to_string(parse_layout("sQ o _8:_8", names)), "Sw<3,3,3> o _0 o _8:_1");
  EXPECT_THROW(parse_layout("Sw<3,3,3> o _0 o sQ", names), Error);
  EXPECT_THROW(parse_layout("sK", names), Error);
}

TEST(LayoutParse, NamesThePlaceOfAnError) {
  const std::vector<std::pair<std::string, std::int64_t>> bad{
      {"", 0},
      {"(4,8", 4},
      {"(4,,8)", 3},
      {"(4,8):(8,1) x", 12},
      {"(2,2):(3)", 6},
      {"(2,0):(1,2)", 0},
      {"(4,8):(8,x)", 9},
      {"(4,8):", 6},
      {"(4,1099511627776)", 3},
      {"(1099511627775,1099511627775)", 0},
      {"Sw<3,3>", 6},
      {"Sw<3,3,3>", 0},
      {"Sw<3,3,2> o _0 o 8:1", 0},
      {"Sw<3,33,3> o _0 o 8:1", 5},
      {"Sw<3,26,3> o _0 o 8:1", 0},
      {"Sw<3,4,3> o smem_ptr[12b](unset) o 8:1", 21},
      {"Sw<3,4,3> o smem_ptr[16](unset) o 8:1", 23},
      {"Sw<3,3,3> o _0", 12},
      {"16 o _0 o 8:1", 0},
      {"8:1 o Sw<3,3,3> o _0 o 8:1", 0},
      {"(_6,_2):(_8,_2) o _2:_9", 0},
      {"nobody", 0},
      {"(4,_):(1,4)", 3},
  };
  for (const auto& [text, position] : bad) EXPECT_EQ(refused_at(text), position) << text;
  try {
    parse_tiler(" (2,(2,2))");
    FAIL() << "a nested shape is no tiler";
  } catch (const Error& error) { EXPECT_EQ(error.position, 1); }
}

TEST(LayoutParse, SaysWhatIsWrong) {
  EXPECT_EQ(why("(2,2):(3)"), "stride (3) is not congruent with shape (2,2)");
  EXPECT_EQ(why("(4,8"), "expected ')' or ',' in a tuple, found the end");
  EXPECT_EQ(why("(4,8):(8,x)"), "expected an integer or '(', found 'x'");
}

TEST(LayoutParse, BoundsWhatItReads) {
  EXPECT_EQ(refused_at(std::string(5000, '(')), 4096);
  EXPECT_EQ(refused_at(std::string(40, '(') + "1" + std::string(40, ')')), 33);
  EXPECT_EQ(refused_at(std::string("8:1\0", 4)), 3);
  EXPECT_EQ(refused_at("\xff"), 0);
  EXPECT_EQ(refused_at("(1048576,1048576,2)"), 0);  // Its last stride would be 2^40.
  std::string ones = "(1";  // These extents are dynamic, so a composition would combine each with each.
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_EQ(why(ones + ") o " + ones + ")"), "composition: the result has more than 4096 modes");
}

TEST(LayoutParse, ReadsCoordinates) {
  EXPECT_EQ(to_string(parse_int_tuple("(_,0,(_1,_))")), "(_,0,(_1,_))");
  EXPECT_EQ(to_string(parse_int_tuple("_")), "_");
  EXPECT_EQ(to_string(parse_int_tuple("_-1")), "_-1");
  EXPECT_THROW(parse_int_tuple("(_,0"), Error);
}

TEST(LayoutParse, TellsTilersFromLayouts) {
  EXPECT_TRUE(parse_tiler("<3:3,(2,4):(1,8)>").is_tuple);
  EXPECT_TRUE(parse_tiler("(2,4)").is_tuple);
  EXPECT_FALSE(parse_tiler("(2,4):(1,2)").is_tuple);
  EXPECT_FALSE(parse_tiler("8").is_tuple);
  EXPECT_THROW(parse_tiler("<3:3"), Error);
  EXPECT_THROW(parse_tiler("<(2,2),3>"), Error);
}

}  // namespace
}  // namespace falchion::layout
