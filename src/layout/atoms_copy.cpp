// src/layout/atoms_copy.cpp: the copy atoms as layouts of bits. They are ldmatrix,
// stmatrix, cp.async and plain loads and stores.
#include <array>

#include "layout/atoms.hpp"
#include "layout/find_atom.hpp"
#include "layout/parse.hpp"

namespace falchion::layout {
namespace {

/// ldmatrix reads `rows`, which are 16 bytes of shared memory for each thread. It leaves `fragments`, which are 32 bits
/// of each matrix for each thread. stmatrix goes the other way.
struct MatrixRow {
  const char *load, *store, *rows, *fragments, *what;
};
constexpr std::array kMatrix{
    MatrixRow{"SM75_U32x4_LDSM_N", "SM90_U32x4_STSM_N", "(32,128):(128,1)", "(32,(32,4)):(32,(1,1024))",
              "4 matrices of 8x8 16-bit elements, the row of each thread"},
    MatrixRow{"SM75_U32x2_LDSM_N", "SM90_U32x2_STSM_N", "((16,2),128):((128,0),1)", "(32,(32,2)):(32,(1,1024))",
              "2 matrices; 16 threads give rows"},
    MatrixRow{"SM75_U32x1_LDSM_N", "SM90_U32x1_STSM_N", "((8,4),128):((128,0),1)", "(32,32):(32,1)",
              "1 matrix; 8 threads give rows"},
    MatrixRow{"SM75_U16x8_LDSM_T", "SM90_U16x8_STSM_T", "(32,128):(128,1)", "((4,8),(16,2,4)):((256,16),(1,128,1024))",
              "4 matrices, transposed"},
    MatrixRow{"SM75_U16x4_LDSM_T", "SM90_U16x4_STSM_T", "((16,2),128):((128,0),1)",
              "((4,8),(16,2,2)):((256,16),(1,128,1024))", "2 matrices, transposed"},
    MatrixRow{"SM75_U16x2_LDSM_T", "SM90_U16x2_STSM_T", "((8,4),128):((128,0),1)", "((4,8),(16,2)):((256,16),(1,128))",
              "1 matrix, transposed"},
};

Layout read(const std::string& text) { return parse_layout(text, {}, true).layout; }

/// A copy by one thread alone, which moves this many bits in their order.
CopyAtom one_thread(const std::string& name, int bits, const std::string& what) {
  const Layout all = read("(1," + std::to_string(bits) + "):(0,1)");
  return {name + "<uint" + std::to_string(bits) + "_t>", read("1:0"), all, all, all, what};
}

std::vector<CopyAtom> all_atoms() {
  std::vector<CopyAtom> atoms;
  const Layout warp = read("32:1");
  for (const bool load : {true, false}) {
    for (const MatrixRow& row : kMatrix) {
      const Layout rows = read(row.rows), fragments = read(row.fragments);
      atoms.push_back({load ? row.load : row.store, warp, load ? rows : fragments, load ? fragments : rows, fragments,
                       std::string(load ? "ldmatrix: " : "stmatrix: ") + row.what});
    }
  }
  for (const int bits : {128, 64, 32})
    atoms.push_back(one_thread("SM80_CP_ASYNC_CACHEALWAYS", bits, "cp.async.ca: through L1 into shared memory"));
  for (const int bits : {128, 64, 32})
    atoms.push_back(one_thread(
        "SM80_CP_ASYNC_CACHEGLOBAL", bits,
        bits == 128 ? "cp.async.cg: past L1 into shared memory" : "cp.async.cg, which PTX has for 16 bytes only"));
  for (const int bits : {128, 64, 32, 16, 8})
    atoms.push_back(one_thread("UniversalCopy", bits, "a plain load and store of " + std::to_string(bits) + " bits"));
  return atoms;
}

}  // namespace

std::span<const CopyAtom> copy_atoms() {
  static const std::vector<CopyAtom> atoms = all_atoms();
  return atoms;
}

const CopyAtom* find_copy_atom(std::string_view name) { return find_atom(copy_atoms(), name); }

}  // namespace falchion::layout
