// tests/layout_oracle/atoms_ours.cpp: prints what src/layout says of its atoms, of what is tiled from them and of every
// thread's part. Its output must equal that of atoms_cute.cpp, which asks CuTe, line for line.
#include <cstdio>
#include <string>

#include "layout/atoms.hpp"
#include "layout/parse.hpp"

namespace {

using namespace falchion::layout;

std::string text(const std::string& s) { return s; }
std::string text(std::int64_t i) { return std::to_string(i); }
std::string text(const Layout& l) { return to_string(l); }
std::string text(const Composed& c) { return to_string(c); }

template <class... Ts>
void line(const char* name, const Ts&... parts) {
  std::string out = name;
  ((out += " " + text(parts)), ...);
  std::puts(out.c_str());
}
std::string tuple(const std::vector<std::int64_t>& values) {
  std::string out;
  for (const std::int64_t value : values) out += (out.empty() ? "(_" : ",_") + std::to_string(value);
  return out + ")";
}
Layout fixed(const char* expression) { return parse_layout(expression, {}, true).layout; }

const MmaAtom& mma(const char* name) {
  const MmaAtom* atom = find_mma_atom(name);
  return atom ? *atom : throw Error("no atom " + std::string(name));
}
const CopyAtom& copy(const char* name) {
  const CopyAtom* atom = find_copy_atom(name);
  return atom ? *atom : throw Error("no atom " + std::string(name));
}

void mma_atom(const char* name) {
  const MmaAtom& atom = mma(name);
  line(name, atom.thread_id, atom.a, atom.b, atom.c, tuple({atom.m, atom.n, atom.k}), atom.bits_a, atom.bits_b,
       atom.bits_c);
}
void copy_atom(const char* name) {
  const CopyAtom& atom = copy(name);
  line(name, atom.thread_id, atom.src, atom.dst, atom.ref);
}
void tiled_mma(const char* name, const TiledMma& tiled) {
  line(name, tiled.thr_layout_vmnk, tiled.a, tiled.b, tiled.c);
}
void tiled_copy(const char* name, const TiledCopy& tiled) {
  line(name, tuple({tiled.m, tiled.n}), tiled.tv, source_tv(tiled), destination_tv(tiled));
}
void part(const char* name, std::int64_t thread, const Partition& p) { line(name, thread, p.layout, p.start); }
void parts(const char* name, const TiledCopy& tiled, const Composed& tensor, bool source) {
  for (std::int64_t i = 0; i < tiled.tv.mode(0).size(); ++i) part(name, i, partition(tiled, tensor, i, source));
}

void atoms() {
#define MMA(op) mma_atom(#op);
#define WGMMA(op, majors) mma_atom(#op);
#define COPY(op) copy_atom(#op);
#include "atoms.def"
}

void tiled() {
  const MmaAtom& f16 = mma("SM80_16x8x16");
  const TiledMma flash = make_tiled_mma(f16, fixed("(4,1,1)"), 64, 16, 16);
  const TiledMma square = make_tiled_mma(f16, fixed("(2,2,1)"), 0, 0, 0);
  tiled_mma("flash", flash);
  tiled_mma("square", square);
  tiled_mma("ordered", make_tiled_mma(mma("SM80_16x8x8_F32TF32TF32F32_TN"), fixed("(2,4,1):(4,1,0)"), 64, 32, 16));
  tiled_mma("wgmma", make_tiled_mma(mma("SM90_64x128x16_F32F16F16_RS"), fixed("(2,1,1)"), 0, 0, 0));
  tiled_mma("deep", make_tiled_mma(f16, fixed("(1,2,2)"), 32, 32, 32));

  const CopyAtom& cp_async = copy("SM80_CP_ASYNC_CACHEGLOBAL");
  const CopyAtom& ldsm = copy("SM75_U32x4_LDSM_N");
  const TiledCopy rows = make_tiled_copy(cp_async, 16, fixed("(16,8):(8,1)"), fixed("(1,8)"));
  const TiledCopy wide = make_tiled_copy(cp_async, 16, fixed("(8,16):(16,1)"), fixed("(1,8)"));
  const TiledCopy warp = make_tiled_copy(cp_async, 16, fixed("(4,8):(8,1)"), fixed("(1,8)"));
  const TiledCopy q = make_tiled_copy(ldsm, 16, flash, Operand::a);
  const TiledCopy k = make_tiled_copy(ldsm, 16, flash, Operand::b);
  const TiledCopy v = make_tiled_copy(copy("SM75_U16x8_LDSM_T"), 16, flash, Operand::b);
  const TiledCopy o = make_tiled_copy(copy("SM90_U32x4_STSM_N"), 16, flash, Operand::c);
  tiled_copy("rows", rows);
  tiled_copy("wide", wide);
  tiled_copy("warp", warp);
  tiled_copy("q", q);
  tiled_copy("k", k);
  tiled_copy("v", v);
  tiled_copy("o", o);
  tiled_copy("q of square", make_tiled_copy(ldsm, 16, square, Operand::a));

  const Composed sQ = parse_layout("Sw<3,3,3> o _0 o ((_8,_16),(_64,_2)):((_64,_512),(_1,_8192))");
  const Composed sK = parse_layout("Sw<3,3,3> o _0 o ((_8,_4),(_64,_2)):((_64,_512),(_1,_2048))");
  const Composed sVt = parse_layout("Sw<3,3,3> o _0 o ((_64,_2),_32):((_1,_2048),_64)");
  const Composed gQ = parse_layout("(128,128):(256,_1)");
  parts("rows gQ", rows, gQ, true);
  parts("rows sQ", rows, sQ, false);
  parts("wide sQ", wide, sQ, false);
  parts("warp sQ", warp, sQ, false);
  parts("q sQ", q, sQ, true);
  parts("k sK", k, sK, true);
  parts("v sVt", v, sVt, true);
  parts("o sQ", o, sQ, false);
  for (std::int64_t i = 0; i < 128; ++i) {
    const Partition a = partition(flash, Operand::a, sQ, i), b = partition(flash, Operand::b, sK, i);
    part("A", i, a);
    line("registers", make_fragment_like(a.layout.layout));
    part("B", i, b);
    line("registers", make_fragment_like(b.layout.layout));
    part("C", i, partition(flash, Operand::c, gQ, i));
  }
}

}  // namespace

int main() try {
  atoms();
  tiled();
} catch (const Error& error) {
  std::fprintf(stderr, "atoms_ours: %s\n", error.what());
  return 1;
}
