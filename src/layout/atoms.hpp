// src/layout/atoms.hpp: says which thread holds which value. It has the thread-value layouts of CuTe's MMA and copy
// atoms, by their CuTe names, and makes tiled ones of them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layout/algebra.hpp"

namespace falchion::layout {

/// Thread-value layouts map (thread, value) to a column-major coordinate: m + M k of A, n + N k of B, m + M n of C.
struct MmaAtom {
  std::string name;    // SM80_16x8x16_F32F16F16F32_TN; SM80_16x8x16 is short for it
  std::string family;  // the name; for a wgmma, which has 32 widths, it has xNx in place of the width
  std::int64_t m, n, k;
  Layout thread_id;  // which threads of a warp or warpgroup; _32:_1
  Layout a, b, c;
  int bits_a, bits_b, bits_c;
  std::string what;  // one sentence for the reader
};
std::span<const MmaAtom> mma_atoms();
/// Finds an atom by its name, or the first one whose name begins like this up to a separator. Null if there is none.
const MmaAtom* find_mma_atom(std::string_view name);

/// make_tiled_mma(atom, atoms, Tile<...>).
struct TiledMma {
  const MmaAtom* atom;
  Layout thr_layout_vmnk;
  std::int64_t m, n, k;  // the size of the tile
  Layout a, b, c;        // thread-value layouts of the tile, as of get_layoutA_TV() and so on
};
/// `atoms` says how many atoms lie along M, N and K, as a layout "(4,1,1)". m, n and k are the size of the tile; 0
/// means the size that the atoms have by themselves.
TiledMma make_tiled_mma(const MmaAtom& atom, const Layout& atoms, std::int64_t m, std::int64_t n, std::int64_t k);

struct CopyAtom {
  std::string name;  // SM75_U32x4_LDSM_N
  Layout thread_id;
  Layout src, dst, ref;  // thread-value layouts in bits; a tiled copy's TV layout refers to ref, which is src or dst
  std::string what;
};
std::span<const CopyAtom> copy_atoms();
/// The same for copy atoms: SM80_CP_ASYNC_CACHEGLOBAL is short for SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>.
const CopyAtom* find_copy_atom(std::string_view name);

/// make_tiled_copy(atom, threads, values).
struct TiledCopy {
  const CopyAtom* atom;
  int element_bits;
  std::int64_t m, n;  // Tiler_MN
  Layout tv;          // TiledLayout_TV
};
TiledCopy make_tiled_copy(const CopyAtom& atom, int element_bits, const Layout& threads, const Layout& values);

enum class Operand { a, b, c };
/// make_tiled_copy_A, _B or _C: a copy after which each thread has the values that the mma needs from it.
TiledCopy make_tiled_copy(const CopyAtom& atom, int element_bits, const TiledMma& mma, Operand operand);
/// get_layoutS_TV and get_layoutD_TV: (thread, value) -> m + M n, of what is read and of what is written.
Layout source_tv(const TiledCopy& copy);
Layout destination_tv(const TiledCopy& copy);

/// What one thread gets of a tensor. As in CuTe, the layout has no swizzle where the swizzle does not act between the
/// thread's own elements. Their strides then depend on the thread and are dynamic, and `start` includes the swizzle.
struct Partition {
  Composed layout;
  std::int64_t start = 0;             // offset of the first element
  std::int64_t before_swizzling = 0;  // the same without the swizzle
};
/// partition_S (source) or partition_D of a tiled copy.
Partition partition(const TiledCopy& copy, const Composed& tensor, std::int64_t thread, bool source = true);
/// partition_A, _B or _C of a tiled mma.
Partition partition(const TiledMma& mma, Operand operand, const Composed& tensor, std::int64_t thread);
/// make_fragment_like: the registers that hold a partition. Its first mode is
/// contiguous, and the others keep their order.
Layout make_fragment_like(const Layout& partition);

}  // namespace falchion::layout
