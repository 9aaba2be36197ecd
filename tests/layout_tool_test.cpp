// tests/layout_tool_test.cpp: tests `falchion layout` as its users meet it: the vectors to the character, pictures that
// are well formed, and bad input that is refused with its place.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "layout/kernels.hpp"
#include "layout/parse.hpp"

namespace {

namespace fs = std::filesystem;
namespace layout = falchion::layout;

struct Result {
  int code = -1;
  std::string out, error;
};

/// Returns the path of the command, which is built beside the folder of this test.
fs::path command() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "falchion"; }

std::string read_all(const std::string& shell, int* status) {
  std::string text;
  FILE* pipe = popen(shell.c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 65536> piece{};
  for (std::size_t n = 0; (n = fread(piece.data(), 1, piece.size(), pipe)) > 0;) text.append(piece.data(), n);
  *status = pclose(pipe);
  return text;
}

Result answer(const std::string& arguments) {
  Result result;
  int status = -1;
  const std::string call = command().string() + " layout " + arguments;
  result.out = read_all(call + " 2>/dev/null", &status);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (result.code != 0) result.error = read_all(call + " 2>&1 >/dev/null", &status);
  return result;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

class LayoutTool : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(command())) GTEST_SKIP() << "the command is not built here: " << command();
  }
};

TEST_F(LayoutTool, PrintLayoutAndPrintTensorAreCutesBytes) {
  EXPECT_EQ(answer("table '(4,8):(8,1)' --dynamic --elem 32b").out,
            "ptr[32b](0x...) o (4,8):(8,1):\n"
            "    0    1    2    3    4    5    6    7\n"
            "    8    9   10   11   12   13   14   15\n"
            "   16   17   18   19   20   21   22   23\n"
            "   24   25   26   27   28   29   30   31\n");
  EXPECT_EQ(answer("table '(2,3):(3,1)'").out,
            "(_2,_3):(_3,_1)\n"
            "      0   1   2 \n"
            "    +---+---+---+\n"
            " 0  | 0 | 1 | 2 |\n"
            "    +---+---+---+\n"
            " 1  | 3 | 4 | 5 |\n"
            "    +---+---+---+\n");
}

TEST_F(LayoutTool, VectorsToTheCharacter) {
  const std::pair<const char*, const char*> cases[] = {
      {"print '((_8,_1),8,2):((128,_0),_16,8192)' --dynamic", "((_8,_1),8,2):((128,_0),_16,8192)"},
      {"print 's o (8,64):(64,1)' --define 's=Sw<3,3,3> o 0 o 512:1'", "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)"},
      {"print sK2 --define 'sK2=Sw<3,3,3> o _0 o (_8,_64):(_64,_1)'", "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)"},
      {"print mma:SM80_16x8x16.A", "((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))"},
      {"compose '(6,2):(8,2)' '(4,3):(3,1)'", "((_2,_2),_3):((_24,_2),_8)"},
      {"compose 20:2 '(5,4):(4,1)'", "(_5,_4):(_8,_2)"},
      {"compose '(10,2):(16,4)' '(5,4):(1,5)'", "(_5,(_2,_2)):(_16,(_80,_4))"},
      {"compose '(10,2):(16,4)' '(5,4):(1,5)' --dynamic", "((5,1),(2,2)):((16,4),(80,4))"},
      {"complement 4:1 24", "_6:_4"},
      {"complement '(4,6):(1,4)' 24", "_1:_0"},
      {"complement 4:2 24", "(_2,_3):(_1,_8)"},
      {"complement '(2,2):(1,6)' 24", "(_3,_2):(_2,_12)"},
      {"divide '(4,2,3):(2,1,8)' 4:2", "((_2,_2),(_2,_3)):((_4,_1),(_2,_8))"},
      {"divide '(9,(4,8)):(59,(13,1))' '<3:3,(2,4):(1,8)>' --kind zipped",
       "((_3,(_2,_4)),(_3,(_2,_2))):((_177,(_13,_2)),(_59,(_26,_1)))"},
      {"product '(2,2):(4,1)' 6:1", "((_2,_2),(_2,_3)):((_4,_1),(_2,_8))"},
      {"product '(2,5):(5,1)' '(3,4):(1,3)' --kind blocked", "((_2,_3),(_5,_4)):((_5,_10),(_1,_30))"},
      {"product '(2,5):(5,1)' '(3,4):(1,3)' --kind raked", "((_3,_2),(_4,_5)):((_10,_5),(_30,_1))"},
      {"tile-to-shape 'Sw<3,3,3> o _0 o (_8,_64):(_64,_1)' '(128,128)'",
       "Sw<3,3,3> o _0 o ((_8,_16),(_64,_2)):((_64,_512),(_1,_8192))"},
      {"tile-to-shape 'Sw<3,3,3> o _0 o (_8,_64):(_64,_1)' '(32,128)'",
       "Sw<3,3,3> o _0 o ((_8,_4),(_64,_2)):((_64,_512),(_1,_2048))"},
      {"inverse left '(4,8):(8,1)'", "(_8,_4):(_4,_1)"},
      {"coalesce '(2,(1,6)):(1,(6,2))'", "_12:_1"},
      {"recast '(8,64):(64,1)' 16b 8b", "(_8,_128):(_128,_1)"},
      {"local-tile '(4,8):(1,4)' '(2,2)' '(0,1)'", "(_2,_2):(_1,_4) at 8"},
      {"local-tile '(4,8):(1,4)' '(2,2)' '(1,0)'", "(_2,_2):(_1,_4) at 2"},
      {"local-partition '(128,8):(1,5120)' '(32,8)' 0", "(_4,_1):(_32,_0) at 0"},
      {"slice '((_8,_1),8,2):((128,_0),_16,8192)' '(_,0,1)' --dynamic", "((_8,_1)):((128,_0)) at 8192"},
      {"slice 'Sw<3,3,3> o _0 o (_8,_64):(_64,_1)' '(2,_)' --dynamic", "((_8,_2,_2,_2)):((_1,8,-16,32)) at 144"},
      {"slice 'Sw<3,3,3> o _0 o (_8,_64):(_64,_1)' '(_,_)'", "Sw<3,3,3> o _0 o (_8,_64):(_64,_1) at 0"},
      {"print sQ", "Sw<3,3,3> o _0 o ((_8,_16),(_64,_2)):((_64,_512),(_1,_8192))"},
      {"print sm80.plain.128.sQ", "Sw<3,3,3> o _0 o ((_8,_16),(_64,_2)):((_64,_512),(_1,_8192))"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Result x = answer(arguments);
    EXPECT_EQ(x.out, std::string(expected) + "\n") << arguments << "\n" << x.error;
  }
}

TEST_F(LayoutTool, CoordinatesOfAShape) {
  const std::string table = answer("coords '(3,(2,3))'").out;
  for (const char* row :
       {"  0  (0,0)  (0,(0,0))\n", "  5  (2,1)  (2,(1,0))\n", "  9  (0,3)  (0,(1,1))\n", " 17  (2,5)  (2,(1,2))\n"})
    EXPECT_TRUE(has(table, row)) << row << table;
  EXPECT_EQ(count(table, "\n"), 20u);  // These are 18 rows, the header and the rule.
  // This is Vector08, in which (1,0..7) maps to 72..79.
  EXPECT_TRUE(has(answer("idx '(1,2)' 'Sw<3,3,3> o 0 o (8,64):(64,1)'").out, "74\n"));
  EXPECT_TRUE(has(answer("crd 7 '(3,(2,3))'").out, "(1,(0,1))"));
  EXPECT_TRUE(has(answer("compat 24 '(24)'").out, "not compatible"));
  // The layout has too many elements to compare them all.
  EXPECT_TRUE(has(answer("info '(4096,4096):(4096,1)'").out, "injective             yes\n"));
  EXPECT_TRUE(has(answer("info '(4096,4096):(4095,1)'").out, "injective             unknown\n"));
  EXPECT_TRUE(has(answer("info '(4,4):(3,1)'").out, "injective             no\n"));
}

TEST_F(LayoutTool, AtomsAndTiles) {
  const std::string mma = answer("mma SM80_16x8x16 --atoms 4,1,1 --tile 64,16,16").out;
  for (const char* line : {"  ThrLayoutVMNK:  (_32,_4,_1,_1):(_1,_32,_0,_0)\n", "  PermutationMNK: (_64,_16,_16)\n",
                           "  LayoutC_TV: ((_4,_8),(_2,_2)):((_32,_1),(_16,_8))\n",
                           "((_4,_8,_4),((_2,_2,_2),(_1,_1))):((_128,_1,_16),((_64,_8,_512),(_0,_0)))\n"})
    EXPECT_TRUE(has(mma, line)) << line << mma;
  const std::string copy = answer(
                               "copy SM80_CP_ASYNC_CACHEGLOBAL --thr '(16,8):(8,1)' --val '(1,8)' --thread 10 --on "
                               "'((_8,_16),(_64,_2)):((_64,_512),(_1,_8192))'")
                               .out;
  EXPECT_TRUE(has(copy, "  Tiler_MN:       (_16,_64)\n  TiledLayout_TV: ((_8,_16),_8):((_128,_1),_16)\n")) << copy;
  EXPECT_TRUE(has(answer("copy SM80_CP_ASYNC_CACHEGLOBAL --thr '(16,8):(8,1)' --val '(1,8)' --thread 10 --on sQ").out,
                  "((_8,_1),_8,_2):((_1,_0),_1024,_8192) at 88, 80 before the swizzle"));
  // These strides are known only when a kernel runs. So no collision is known either, and CuTe makes a plain layout.
  EXPECT_TRUE(has(answer("copy UniversalCopy --dynamic --thr '(_8,_8):(_8,_1)' --val '(_1,_8)' --elem 16b --thread 10 "
                         "--on 'Sw<3,3,3> o _0 o (8,64):(64,1)'")
                      .out,
                  " at 88, 80 before the swizzle"));
}

TEST_F(LayoutTool, BanksCountWavefronts) {
  const auto wavefronts = [](const std::string& arguments) {
    const std::string json = answer("banks " + arguments + " --format json").out, key = "\"wavefronts\": \"";
    const std::size_t at = json.find(key);
    return at == std::string::npos ? -1 : std::stoi(json.substr(at + key.size()));
  };
  const std::string acc = " --access sts32 --tile 8x8", load = " --access cp.async16 --tile 4x64";
  EXPECT_EQ(wavefronts("'(128,128):(128,1)'"), 32);
  EXPECT_EQ(wavefronts("sQ"), 4);
  EXPECT_EQ(wavefronts("'(128,128):(136,1)'"), 4);
  EXPECT_EQ(wavefronts("'(128,128):(128,1)'" + acc), 8);
  EXPECT_EQ(wavefronts("sQ" + acc), 1);
  EXPECT_EQ(wavefronts("'(128,128):(136,1)'" + acc), 1);
  EXPECT_EQ(wavefronts("'(128,128):(128,1)'" + load), 4);
  EXPECT_EQ(wavefronts("sQ" + load), 4);
  EXPECT_EQ(wavefronts("sVt --access ldmatrix.x4.trans"), 4);
  EXPECT_EQ(wavefronts("'(64,16):(1,64)' --access ldmatrix.x4.trans"), 32);
  EXPECT_EQ(wavefronts("'(32,32):(32,1)' --elem 32b --access lds32 --tile 32x1"), 32);
  EXPECT_EQ(wavefronts("'(32,32):(32,1)' --elem 32b --access lds32 --threads 32:1"), 32);
  EXPECT_EQ(wavefronts("'(32,32):(33,1)' --elem 32b --access lds32 --tile 32x1"), 1);
  EXPECT_EQ(wavefronts("'Sw<5,0,5> o 0 o (32,32):(32,1)' --elem 32b --access lds32 --tile 32x1"), 1);
}

/// Checks src/layout/kernels.inc: CuTe's prints are read back to the character, and no part is larger than what holds
/// it.
TEST_F(LayoutTool, KernelsAreReadBack) {
  ASSERT_GT(layout::kernels().size(), 20u);
  for (const layout::Kernel& kernel : layout::kernels()) {
    std::int64_t bytes = 0;
    ASSERT_FALSE(layout::kernel_layouts(kernel.name).empty()) << kernel.name;
    for (const layout::KernelLayout& item : layout::kernel_layouts(kernel.name)) {
      EXPECT_EQ(to_string(layout::parse_layout(item.print)), item.print) << kernel.name << " " << item.name;
      bytes += item.bytes;
    }
    EXPECT_LE(bytes, kernel.shared_bytes) << kernel.name;
    EXPECT_GE(bytes + 4096, kernel.shared_bytes) << kernel.name << ": the tiles are all but the barriers and scales";
  }
}

TEST_F(LayoutTool, ExplainAddsUpSharedMemory) {
  EXPECT_TRUE(has(answer("explain").out, "sm90:plain:64"));
  const std::string text = answer("explain sm80:plain:128").out;
  for (const char* part : {"sQ              32768", "sK              16384", "a CTA           65536",
                           "Sw<3,3,3> o _0 o ((_64,_2),_64):((_1,_4096),_64)", "acc_s"})
    EXPECT_TRUE(has(text, part)) << part << text;
}

TEST_F(LayoutTool, BadInputIsRefusedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"print '(4,8):(8'", "at character 8"},
      {"print '(2,2):(3)'", "at character 6"},
      {"print 'nothing'", "at character 0: 'nothing' names no layout"},
      {"print '(4,8):(8,1) junk'", "at character 12"},
      {"print '(4,8) o '", "layout"},
      {"print ''", "layout"},
      {"print", "0 arguments"},
      {"print 1 2", "falchion layout print EXPR"},
      {"frobnicate 1", "frobnicate"},
      {"inverse up 4:1", "up"},
      {"mma SM99", "SM99"},
      {"copy NONE", "NONE"},
      {"explain sm70:plain:64", "sm70:plain:64"},
      {"banks '(16,64):(64,1)' --access ldmatrix.x3", "ldmatrix.x3"},
      {"banks '(16,64):(64,1)' --at 8,0", "leaves the layout"},
      {"banks '(16,64):(1,16)'", "next to"},
      {"complement 4:-1 24", "stride below 0"},
      {"complement 4:1 0", "at least 1"},
      {"complement 4:1 -3", "at least 1"},
      {"complement 4:0 8 --dynamic", "not injective"},
      {"divide 8:1 4:-1", "stride below 0"},
      {"product '(4):(-1)' 3:1", "stride below 0"},
      {"crd -5 '(4,4)'", "-5 is outside 0..15"},
      {"crd 16 '(4,4)'", "16 is outside 0..15"},
      {"local-tile '(4,8)' '(0,2)' '(0,0)'", "TILE (_0,_2)"},
      {"local-partition '(4,8)' '(2,2):(0,1)' 1", "THREADS (_2,_2):(_0,_1)"},
      {"table '(2048,2048)'", "bytes of text, more than 16777216"},
      {"table '(4096,1024)' --elem 16b", "bytes of text, more than 16777216"},
      {"swizzle 'Sw<3,3,3> o 0 o (4096,4096)'", "bytes of text, more than 16777216"},
      {"coords '(512,((1,1,1,1,1,1,1,1),(1,1,1,1,1,1,1,1),512))'", "bytes of text, more than 16777216"},
      {"table '(4,8)' --elem 12b", "12b"},
      {"table '(65536,65536)'", "bytes of text, more than 16777216"},
      {"info '(4,8)' --format svg -o /nowhere/x.svg", "/nowhere/x.svg"},
      {"compat 4 4 --format svg", "no picture"},
      {"print a --define '=4'", "NAME=EXPR"},
      {"mma SM80_16x8x16 --tile 64,16", "64,16"},
      {"mma SM80_16x8x16 --atoms 4000000,1,1", "layout"},
  };
  for (const auto& [arguments, why] : cases) {
    const Result x = answer(arguments);
    EXPECT_EQ(x.code, 2) << arguments << "\n" << x.out.substr(0, 400);
    EXPECT_TRUE(has(x.error, why)) << arguments << "\n" << x.error;
  }
  EXPECT_TRUE(has(answer("print '(4,8):(8'").error, "\n  (4,8):(8\n          ^\n"));
}

/// Each of these expressions can be read, but the operation refuses them together. Then the message names where the
/// operands stand in the call.
TEST_F(LayoutTool, AnOperationThatRefusesNamesWhereItsOperandsStand) {
  const std::pair<const char*, const char*> cases[] = {
      {"complement 4:-1 24",
       "at characters 11, 16: complement: _4:_-1 has a stride below 0\n  complement 4:-1 24\n             ^    ^\n"},
      {"inverse left '(4,8):(3,-1)'", "at character 13: left_inverse: "},
      {"recast '(8,64):(64,2)' 16b 8b", "\n  recast (8,64):(64,2) 16b 8b\n         ^\n"},
      {"compose '(6,2):(8,2)' 2:9", "at characters 8, 20: composition: the stride divisibility"},
      {"idx '(1,1,1)' '(4,4)'", "at characters 4, 12: coordinate (_1,_1,_1) does not fit"},
      {"swizzle 'Sw<3,3,3>' '(4096,4096)'", "at character 18: "},
      // The cause is an option, so no operand of the call is named.
      {"mma SM80_16x8x16 --atoms 64,1,1", "layout mma: "},
  };
  for (const auto& [arguments, why] : cases) {
    const Result x = answer(arguments);
    EXPECT_EQ(x.code, 2) << arguments;
    EXPECT_TRUE(has(x.error, why)) << arguments << "\n" << x.error;
  }
  std::string ones = "(1";
  for (int i = 0; i < 100; ++i) ones += ",1";
  const std::string error = answer("compose '(2,2)' '<" + ones.substr(1) + ">'").error;
  EXPECT_TRUE(has(error, "at characters 8, 14: ")) << error;
  EXPECT_EQ(count(error, "\n"), 1u) << "a long call is not repeated";
}

/// Says where a picture is not well formed. Every element that is opened must be closed, in order, and no text may have
/// a bare '<' or '&'.
std::string not_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = xml.find('<', at)) != std::string::npos;) {
    const std::size_t end = xml.find('>', at);
    if (end == std::string::npos || xml.find('<', at + 1) < end) return "a bare '<' at " + std::to_string(at);
    const std::string tag = xml.substr(at + 1, end - at - 1), name = tag.substr(0, tag.find(' '));
    if (name.front() == '/') {
      if (open.empty() || open.back() != name.substr(1)) return "unexpected <" + name + ">";
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  for (std::size_t at = 0; (at = xml.find('&', at)) != std::string::npos; ++at)
    if (xml.compare(at, 4, "&lt;") != 0 && xml.compare(at, 4, "&gt;") != 0 && xml.compare(at, 5, "&amp;") != 0 &&
        xml.compare(at, 6, "&quot;") != 0)
      return "a bare '&'";
  return open.empty() ? "" : "<" + open.back() + "> stays open";
}

TEST_F(LayoutTool, SvgIsWellFormedAndHasACellACoordinate) {
  const std::pair<const char*, std::size_t> cases[] = {
      {"table 'Sw<3,3,3> o _0 o (_8,_64):(_64,_1)'", 8 * 64},
      {"print 24:1", 24},
      {"mma SM80_16x8x16", 16 * 16 + 8 * 16 + 16 * 8},
      {"copy SM75_U32x4_LDSM_N", 2 * 32 * 8},
      {"swizzle 'Sw<3,3,3>' '(8,64):(64,1)'", 2 * 8 * 64},
      {"banks '(16,64):(64,1)'", 16 * 64},
      {"table '(1024,2048):(2048,1)'", 128 * 128},
  };
  for (const auto& [arguments, cells] : cases) {
    const std::string svg = answer(std::string(arguments) + " --format svg").out;
    EXPECT_EQ(svg.rfind("<svg ", 0), 0u) << arguments;
    EXPECT_EQ(not_well_formed(svg), "") << arguments;
    EXPECT_EQ(count(svg, "<rect x="), cells) << arguments;
  }
  EXPECT_TRUE(has(answer("banks '(16,64):(64,1)' --format svg").out, "class=\"conflicts\""));
  EXPECT_FALSE(has(answer("banks 'Sw<3,3,3> o 0 o (16,64):(64,1)' --format svg").out, "class=\"conflicts\""));
  EXPECT_FALSE(has(answer("table '(1024,2048)' --format svg").out, "class=\"labels\"")) << "a heat map has no text";
}

TEST_F(LayoutTool, ARowOfCellsIsALineOfTheSvg) {
  // A line each for 8 rows of cells, 8 rows of labels, the numbers of the rows, those of the columns, and 15 around
  // them.
  EXPECT_EQ(count(answer("table '(8,64):(64,1)' --format svg").out, "\n"), 8u + 8u + 2u + 15u);
  EXPECT_EQ(count(answer("table '(8,128):(128,1)' --format svg").out, "\n"), 8u + 8u + 2u + 15u);
  EXPECT_EQ(count(answer("table '(16,64):(64,1)' --format svg").out, "\n"), 16u + 16u + 2u + 15u);
}

TEST_F(LayoutTool, LatexIsCutesAndJsonHasTheOffsets) {
  EXPECT_EQ(answer("table '(1,2):(2,1)' --format latex").out,
            "% Layout: (_1,_2):(_2,_1)\n"
            "\\documentclass[convert]{standalone}\n\\usepackage{tikz}\n\n\\begin{document}\n"
            "\\begin{tikzpicture}[x={(0cm,-1cm)},y={(1cm,0cm)},every node/.style={minimum size=1cm, outer sep=0pt}]\n\n"
            "\\node[fill=black!00] at (0,0) {0};\n\\node[fill=black!40] at (0,1) {1};\n"
            "\\draw[color=black,thick,shift={(-0.5,-0.5)}] (0,0) grid (1,2);\n\n"
            "\\node at (0,-1) {\\Large{\\texttt{0}}};\n"
            "\\node at (-1,0) {\\Large{\\texttt{0}}};\n\\node at (-1,1) {\\Large{\\texttt{1}}};\n"
            "\\end{tikzpicture}\n\\end{document}\n");
  EXPECT_TRUE(has(answer("mma SM80_16x8x16 --format latex").out, "at (0,-17) {\\shortstack{T0 \\\\ V0}};"));
  const std::string json = answer("print '(2,(2,2)):(2,(1,4))' --format json").out;
  EXPECT_TRUE(has(json, "\"shape\": [2,[2,2]], \"stride\": [2,[1,4]]")) << json;
  EXPECT_TRUE(has(json, "[0,1,4,5],\n      [2,3,6,7]]")) << json;
}

/// Returns the time that the command spent on the processor, in milliseconds. The command waits for nothing, so on a
/// quiet machine a clock would say the same.
double spent_by_children() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto milliseconds = [](const timeval& t) {
    return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
  };
  return milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime);
}

TEST_F(LayoutTool, AnyLayoutOf128x128IsAnsweredIn50Ms) {
#ifdef __OPTIMIZE__
  for (const char* format : {"text", "svg", "html", "latex", "json"}) {
    const std::string call =
        std::string("table 'Sw<3,3,3> o 0 o ((8,16),(64,2)):((64,512),(1,8192))' --format ") + format;
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const double before = spent_by_children();
      ASSERT_EQ(answer(call).code, 0);
      best = std::min(best, spent_by_children() - before);
    }
    EXPECT_LT(best, 50) << format;
  }
#else
  GTEST_SKIP() << "not optimised";
#endif
}

TEST_F(LayoutTool, HelpNamesEveryVerb) {
  const std::string help = answer("--help").out;
  for (const char* part : {"tile-to-shape", "local-partition", "explain", "Examples:", "falchion layout banks sQ"})
    EXPECT_TRUE(has(help, part)) << part;
}

}  // namespace
