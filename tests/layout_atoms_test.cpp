// tests/layout_atoms_test.cpp: compares the atoms, and what is tiled from them, with what CuTe prints.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "layout/atoms.hpp"
#include "layout/parse.hpp"

namespace falchion::layout {
namespace {

const char* const kSQ = "Sw<3,3,3> o _0 o ((_8,_16),(_64,_2)):((_64,_512),(_1,_8192))";
const char* const kSK = "Sw<3,3,3> o _0 o ((_8,_4),(_64,_2)):((_64,_512),(_1,_2048))";

Composed tensor(const std::string& text) { return parse_layout(text); }
Layout threads(const std::string& text) { return parse_layout(text, {}, true).layout; }
const MmaAtom& mma(std::string_view name) {
  const MmaAtom* atom = find_mma_atom(name);
  if (!atom) throw Error("no atom " + std::string(name));
  return *atom;
}
const CopyAtom& copy(std::string_view name) {
  const CopyAtom* atom = find_copy_atom(name);
  if (!atom) throw Error("no atom " + std::string(name));
  return *atom;
}
/// The TiledMma of FlashAttention-2's forward kernel, whose 4 warps lie one below the other along the rows of Q.
TiledMma flash_mma() { return make_tiled_mma(mma("SM80_16x8x16_F32F16F16F32_TN"), threads("(4,1,1)"), 64, 16, 16); }

// ---- Atoms ----------------------------------------------------------------------------------------------------------

TEST(Vector03, TheWarpsMma) {
  for (const char* name : {"SM80_16x8x16", "SM80_16x8x16_F32F16F16F32_TN", "SM80_16x8x16_F32BF16BF16F32_TN"}) {
    const MmaAtom& atom = mma(name);
    EXPECT_EQ(to_string(atom.thread_id), "_32:_1");
    EXPECT_EQ(to_string(atom.a), "((_4,_8),(_2,_2,_2)):((_32,_1),(_16,_8,_128))");
    EXPECT_EQ(to_string(atom.b), "((_4,_8),(_2,_2)):((_16,_1),(_8,_64))");
    EXPECT_EQ(to_string(atom.c), "((_4,_8),(_2,_2)):((_32,_1),(_16,_8))");
    EXPECT_EQ(atom.m * 10000 + atom.n * 100 + atom.k, 160816);
    EXPECT_EQ(atom.bits_a + atom.bits_b + atom.bits_c, 64);
  }
  EXPECT_EQ(mma("SM80_16x8x16").name, "SM80_16x8x16_F32F16F16F32_TN");
}

struct Cell {
  std::int64_t thread, value, row, column;
};
void expect_cells(const Layout& tv, std::int64_t rows, const std::vector<Cell>& cells) {
  for (const Cell& c : cells) {
    const std::int64_t at = tv.mode(0)(c.thread) + tv.mode(1)(c.value);
    EXPECT_EQ(at % rows, c.row) << "T" << c.thread << " V" << c.value;
    EXPECT_EQ(at / rows, c.column) << "T" << c.thread << " V" << c.value;
  }
}
TEST(Vector03, TheCellsOfTheMma) {
  const MmaAtom& atom = mma("SM80_16x8x16");
  expect_cells(atom.a, 16,
               {{0, 0, 0, 0},
                {0, 1, 0, 1},
                {0, 2, 8, 0},
                {0, 3, 8, 1},
                {0, 4, 0, 8},
                {0, 5, 0, 9},
                {0, 6, 8, 8},
                {0, 7, 8, 9},
                {1, 0, 0, 2},
                {4, 0, 1, 0},
                {31, 0, 7, 6},
                {31, 7, 15, 15}});
  expect_cells(atom.b, 8,
               {{0, 0, 0, 0},
                {0, 1, 0, 1},
                {0, 2, 0, 8},
                {0, 3, 0, 9},
                {31, 0, 7, 6},
                {31, 1, 7, 7},
                {31, 2, 7, 14},
                {31, 3, 7, 15}});
  expect_cells(atom.c, 16, {{0, 0, 0, 0}, {0, 1, 0, 1}, {0, 2, 8, 0}, {0, 3, 8, 1}, {1, 0, 0, 2}, {31, 3, 15, 7}});
}

TEST(Vector14, Wgmma) {
  for (const char* name : {"SM90_64x128x16_F32BF16BF16_SS", "SM90_64x128x16_F32F16F16_RS"}) {
    EXPECT_EQ(to_string(mma(name).c), "((_4,_8,_4),(_2,_2,_16)):((_128,_1,_16),(_64,_8,_512))");
    EXPECT_EQ(to_string(mma(name).b), "(_128,(_128,_16)):(_0,(_1,_128))");
    EXPECT_EQ(to_string(mma(name).thread_id), "_128:_1");
  }
  EXPECT_EQ(to_string(mma("SM90_64x128x16_F32F16F16_RS").a), "((_4,_8,_4),(_2,_2,_2)):((_128,_1,_16),(_64,_8,_512))");
  EXPECT_EQ(to_string(mma("SM90_64x128x16_F32F16F16_SS").a), "(_128,(_64,_16)):(_0,(_1,_64))");
  EXPECT_EQ(to_string(mma("SM90_64x256x32_F32E4M3E4M3_RS_TN").a),
            "((_4,_8,_4),(_4,_2,_2)):((_256,_1,_16),(_64,_8,_1024))");
  EXPECT_EQ(to_string(mma("SM90_64x96x8_F32TF32TF32_RS_TN").a), "((_4,_8,_4),(_2,_2)):((_64,_1,_16),(_8,_256))");
  EXPECT_EQ(mma("SM90_64x80x16").name, "SM90_64x80x16_F32BF16BF16_SS");
  EXPECT_EQ(mma("SM90_64x80x16").family, "SM90_64xNx16_F32BF16BF16_SS");
  for (int n = 8; n <= 256; n += 8)
    EXPECT_EQ(mma("SM90_64x" + std::to_string(n) + "x16_F32F16F16_SS").c.cosize(), 64 * n) << n;
  EXPECT_EQ(find_mma_atom("SM90_64x264x16_F32F16F16_SS"), nullptr);
  EXPECT_EQ(find_mma_atom("SM90_64x40x32_S32S8S8_SS_TN"), nullptr);
  EXPECT_NE(find_mma_atom("SM90_64x48x32_S32S8S8_SS_TN"), nullptr);
}

/// Every element of an operand belongs to exactly one thread. The exception is an operand that a wgmma reads from
/// shared memory.
TEST(LayoutAtoms, EveryAtomCoversItsTileOnce) {
  std::set<std::string> names;
  const auto covers = [](const Layout& tv, std::int64_t size) {
    // All threads of a wgmma see the whole of an operand in shared memory.
    const bool shared = tv.mode(0).cosize() == 1 && tv.mode(1).size() == size;
    const Layout once = shared ? tv.mode(1) : tv;
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < once.size(); ++i) seen.insert(once(i));
    return once.size() == size && *seen.begin() == 0 && *seen.rbegin() == size - 1 &&
           seen.size() == static_cast<std::size_t>(size);
  };
  for (const MmaAtom& atom : mma_atoms()) {
    if (atom.n > 64 && atom.n != 256) continue;
    EXPECT_TRUE(covers(atom.a, atom.m * atom.k)) << atom.name;
    EXPECT_TRUE(covers(atom.b, atom.n * atom.k)) << atom.name;
    EXPECT_TRUE(covers(atom.c, atom.m * atom.n)) << atom.name;
  }
  for (const MmaAtom& atom : mma_atoms()) EXPECT_TRUE(names.insert(atom.name).second) << atom.name << " twice";
}

TEST(LayoutAtoms, TilesOfAmx) {
  // B is stored in VNNI pairs: element (n,k) lies at (_16,(_2,_16)):(_2,(_1,_32)). Value v of the atom is the element
  // that lies at offset v.
  const MmaAtom& amx = mma("AMX_TDPBF16PS");
  const Layout b = threads("(16,(2,16)):(2,(1,32))"), a = threads("(16,32):(32,1)"), c = threads("(16,16):(16,1)");
  for (std::int64_t i = 0; i < 16 * 32; ++i) {
    EXPECT_EQ(amx.b.mode(1)(b(i)), i);
    EXPECT_EQ(amx.a.mode(1)(a(i)), i);
  }
  for (std::int64_t i = 0; i < 16 * 16; ++i) EXPECT_EQ(amx.c.mode(1)(c(i)), i);
}

TEST(LayoutAtoms, NamesNobodyHas) {
  for (const char* name : {"", "SM80", "SM80_16x8x1", "sm80_16x8x16", "SM80_16x8x16_", "SM75_U32x4_LDSM_N"})
    EXPECT_TRUE(!find_mma_atom(name) || std::string(name) == "SM80") << name;
  for (const char* name : {"", "SM75_U32x4_LDSM", "SM75_U32x4", "UniversalCopy"})
    EXPECT_EQ(find_copy_atom(name) == nullptr, std::string(name).empty()) << name;
  EXPECT_EQ(copy("SM80_CP_ASYNC_CACHEGLOBAL").name, "SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>");
}

TEST(LayoutAtoms, CopyAtoms) {
  const CopyAtom& ldsm = copy("SM75_U32x4_LDSM_N");
  EXPECT_EQ(to_string(ldsm.src), "(_32,_128):(_128,_1)");
  EXPECT_EQ(to_string(ldsm.dst), "(_32,(_32,_4)):(_32,(_1,_1024))");
  EXPECT_EQ(to_string(recast(ldsm.dst, 1, 16)), "(_32,(_2,_4)):(_2,(_1,_64))");
  EXPECT_EQ(to_string(copy("SM75_U32x2_LDSM_N").src), "((_16,_2),_128):((_128,_0),_1)");
  EXPECT_EQ(to_string(copy("SM75_U16x8_LDSM_T").dst), "((_4,_8),(_16,_2,_4)):((_256,_16),(_1,_128,_1024))");
  EXPECT_EQ(to_string(copy("SM90_U32x4_STSM_N").src), to_string(ldsm.dst));
  EXPECT_EQ(to_string(copy("SM90_U32x4_STSM_N").dst), to_string(ldsm.src));
  EXPECT_EQ(to_string(copy("UniversalCopy<uint32_t>").src), "(_1,_32):(_0,_1)");
}

// ---- Tiled ----------------------------------------------------------------------------------------------------------

TEST(Vector03, TiledMma) {
  const TiledMma tiled = flash_mma();
  EXPECT_EQ(to_string(tiled.thr_layout_vmnk), "(_32,_4,_1,_1):(_1,_32,_0,_0)");
  EXPECT_EQ(to_string(tiled.a), "((_4,_8,_4),((_2,_2,_2),(_1,_1))):((_128,_1,_16),((_64,_8,_512),(_0,_0)))");
  EXPECT_EQ(to_string(tiled.b), "((_4,_8,_4),((_2,_2),(_2,_1))):((_32,_1,_0),((_16,_128),(_8,_0)))");
  EXPECT_EQ(to_string(tiled.c), "((_4,_8,_4),((_2,_2),(_1,_2))):((_128,_1,_16),((_64,_8),(_0,_512)))");
  const TiledMma plain = make_tiled_mma(mma("SM80_16x8x16"), threads("(2,2,1)"), 0, 0, 0);
  EXPECT_EQ(plain.m * 10000 + plain.n * 100 + plain.k, 321616);
}

TEST(LayoutAtoms, TiledMmaRefusesWhatDoesNotFit) {
  const MmaAtom& atom = mma("SM80_16x8x16");
  EXPECT_THROW(make_tiled_mma(atom, threads("(4,1,1)"), 96, 0, 0), Error);
  EXPECT_THROW(make_tiled_mma(atom, threads("(4,1,1)"), -64, 0, 0), Error);
  EXPECT_THROW(make_tiled_mma(atom, threads("(4,1,1)"), std::int64_t{1} << 40, 0, 0), Error);
  EXPECT_THROW(make_tiled_mma(atom, threads("(64,1,1)"), 0, 0, 0), Error);
  EXPECT_THROW(make_tiled_mma(atom, threads("(1,1,1,1)"), 0, 0, 0), Error);
}

TEST(Vector11, TiledCopy) {
  const TiledCopy tiled =
      make_tiled_copy(copy("SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>"), 16, threads("(16,8):(8,1)"), threads("(1,8)"));
  EXPECT_EQ(tiled.m, 16);
  EXPECT_EQ(tiled.n, 64);
  EXPECT_EQ(to_string(tiled.tv), "((_8,_16),_8):((_128,_1),_16)");
  EXPECT_EQ(to_string(source_tv(tiled)), "((_8,_16),(_8,_1)):((_128,_1),(_16,_0))");

  const Partition gmem = partition(tiled, tensor("(128,128):(128,_1)"), 10);
  EXPECT_EQ(to_string(gmem.layout), "((_8,_1),8,2):((_1,_0),2048,_64)");
  EXPECT_EQ(gmem.start, 1 * 128 + 16);

  const Partition smem = partition(tiled, tensor(kSQ), 10, false);
  EXPECT_EQ(to_string(smem.layout), "((_8,_1),_8,_2):((_1,_0),_1024,_8192)");
  EXPECT_EQ(smem.before_swizzling, 80);
  EXPECT_EQ(smem.start, 88);
}

// gQ is (128,128):(_1,128), as the tutorial prints it, which is a column-major Q.
TEST(Vector11, ThreadTenOfTheTiledCopy) {
  const TiledCopy tiled =
      make_tiled_copy(copy("SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>"), 16, threads("(16,8):(8,1)"), threads("(1,8)"));
  const Partition gmem = partition(tiled, tensor("(128,128):(_1,128)"), 10);
  EXPECT_EQ(to_string(gmem.layout), "((_8,_1),8,2):((128,_0),_16,8192)");
  EXPECT_EQ(gmem.start, 2049);
  EXPECT_EQ(gmem.layout.layout.size(), 128);
  EXPECT_EQ(gmem.layout.layout.rank(), 3u);
  const Slice step = slice(gmem.layout.layout, parse_int_tuple("(_,0,1)"));
  EXPECT_EQ(to_string(step.layout), "((_8,_1)):((128,_0))");
  EXPECT_EQ(gmem.start + step.offset_of, 10241);
}

/// The registers and views of FlashAttention-2's forward kernel with blocks of 128 x 32 and head dim 128.
TEST(Vector12, WhatAThreadHolds) {
  const TiledMma tiled = flash_mma();
  const auto fragment = [&](Operand operand, const Composed& a) {
    return to_string(make_fragment_like(partition(tiled, operand, a, 0).layout.layout));
  };
  const auto accumulator = [&](const std::string& shape) {
    return to_string(make_layout(partition(tiled, Operand::c, tensor(shape), 0).layout.layout.shape));
  };
  // These are the same bytes, seen as (d, key).
  const Composed s_vt = composition(tensor(kSK), threads("(128,32):(32,1)"));
  const TiledCopy q = make_tiled_copy(copy("SM75_U32x4_LDSM_N"), 16, tiled, Operand::a);
  // This is tSrQ.
  EXPECT_EQ(fragment(Operand::a, tensor(kSQ)), "((_2,_2,_2),_2,((_2,_2),_2)):((_1,_2,_4),_8,((_32,_64),_16))");
  // This is tSrK.
  EXPECT_EQ(fragment(Operand::b, tensor(kSK)), "((_2,_2),_4,((_2,_2),_2)):((_1,_2),_4,((_32,_64),_16))");
  EXPECT_EQ(to_string(s_vt), "Sw<3,3,3> o _0 o ((_64,_2),_32):((_1,_2048),_64)");  // This is sVt.
  EXPECT_EQ(to_string(s_vt.layout), "((_64,_2),_32):((_1,_2048),_64)");            // This is sVt without the swizzle.
  EXPECT_EQ(fragment(Operand::b, tensor(to_string(s_vt.layout))),
            "((_2,_2),(_8,_2),_2):((_1,_2),(_4,_64),_32)");                   // This is tOrVt.
  EXPECT_EQ(accumulator("(_128,_32)"), "((_2,_2),_2,_4):((_1,_2),_4,_8)");    // This is acc_s.
  EXPECT_EQ(accumulator("(_128,_128)"), "((_2,_2),_2,_16):((_1,_2),_4,_8)");  // This is acc_o.
  EXPECT_EQ(to_string(partition(q, tensor(kSQ), 0).layout),
            "((_8,_1),_2,((_2,_2),_2)):((_1,_0),_4096,((16,32),_8192))");  // This is tSsQ.
}

TEST(Vector12, LdmatrixOfAnotherThread) {
  const TiledCopy q = make_tiled_copy(copy("SM75_U32x4_LDSM_N"), 16, flash_mma(), Operand::a);
  // Thread 7 reads row 7, in which all bits of Y are set. So both strides of the columns are negative.
  EXPECT_EQ(to_string(partition(q, tensor(kSQ), 7).layout),
            "((_8,_1),_2,((_2,_2),_2)):((_1,_0),_4096,((-16,-32),_8192))");
}

/// A partition may have no swizzle left, but its offsets are still those that the tensor itself gives.
TEST(LayoutAtoms, PartitionsAreWhereTheTensorIs) {
  const Composed q = tensor(kSQ);
  const TiledCopy load =
      make_tiled_copy(copy("SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>"), 16, threads("(16,8):(8,1)"), threads("(1,8)"));
  const TiledCopy matrices = make_tiled_copy(copy("SM75_U32x4_LDSM_N"), 16, flash_mma(), Operand::a);
  for (const TiledCopy* tiled : {&load, &matrices}) {
    std::multiset<std::int64_t> seen;
    for (std::int64_t thread = 0; thread < 128; ++thread) {
      const Partition part = partition(*tiled, q, thread);
      for (std::int64_t i = 0; i < part.layout.layout.size(); ++i)
        seen.insert(part.start + (part.layout.has_swizzle ? part.layout(i) : part.layout.layout(i)));
    }
    ASSERT_EQ(seen.size(), 128u * 128u);
    std::int64_t want = 0;
    for (const std::int64_t offset : seen) ASSERT_EQ(offset, want++);
  }
}

TEST(LayoutAtoms, PartitionRefusesThreadsThatAreNotThere) {
  const TiledMma tiled = flash_mma();
  EXPECT_THROW(partition(tiled, Operand::a, tensor(kSQ), 128), Error);
  EXPECT_THROW(partition(tiled, Operand::a, tensor(kSQ), -1), Error);
  EXPECT_THROW(make_tiled_copy(copy("SM75_U32x4_LDSM_N"), 16, threads("(3,8)"), threads("(1,8)")), Error);
  EXPECT_THROW(make_tiled_copy(copy("UniversalCopy<uint128_t>"), 16, threads("(16,8)"), threads("(1,4)")), Error);
}

}  // namespace
}  // namespace falchion::layout
