// src/layout/atoms.hpp: which thread holds which value: the thread-value layouts of CuTe's MMA and copy atoms, by their
// CuTe names, and tiled ones made of them.
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
  std::string family;  // the name with xNx for the width of a wgmma, which has 32 of them; else the name
  std::int64_t m, n, k;
  Layout thread_id;  // which threads of a warp or warpgroup; _32:_1
  Layout a, b, c;
  int bits_a, bits_b, bits_c;
  std::string what;  // one sentence for the reader
};
std::span<const MmaAtom> mma_atoms();
/// By name, or by the start of it up to a separator: the first of those. Null if there is none.
const MmaAtom* find_mma_atom(std::string_view name);

/// make_tiled_mma(atom, atoms, Tile<...>).
struct TiledMma {
  const MmaAtom* atom;
  Layout thr_layout_vmnk;
  std::int64_t m, n, k;  // the tile
  Layout a, b, c;        // thread-value, of the tile: get_layoutA_TV() and so on
};
/// atoms: how many along M, N, K, as a layout "(4,1,1)"; tile: M, N, K, 0 for what the atoms make by themselves.
TiledMma make_tiled_mma(const MmaAtom& atom, const Layout& atoms, std::int64_t m, std::int64_t n, std::int64_t k);

struct CopyAtom {
  std::string name;  // SM75_U32x4_LDSM_N
  Layout thread_id;
  Layout src, dst, ref;  // thread-value, in bits; a tiled copy's TV layout is said in terms of ref, which is src or dst
  std::string what;
};
std::span<const CopyAtom> copy_atoms();
/// As find_mma_atom: SM80_CP_ASYNC_CACHEGLOBAL is short for SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>.
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
/// make_tiled_copy_A, _B or _C: a copy that leaves each thread with what the mma wants of it.
TiledCopy make_tiled_copy(const CopyAtom& atom, int element_bits, const TiledMma& mma, Operand operand);
/// get_layoutS_TV and get_layoutD_TV: (thread, value) -> m + M n, of what is read and of what is written.
Layout source_tv(const TiledCopy& copy);
Layout destination_tv(const TiledCopy& copy);

/// What one thread gets of a tensor. As in CuTe a swizzle is gone from the layout where the thread's own elements do
/// not meet it: their strides then depend on the thread, are dynamic, and start is past the swizzle.
struct Partition {
  Composed layout;
  std::int64_t start = 0;             // offset of the first element
  std::int64_t before_swizzling = 0;  // the same without the swizzle
};
/// partition_S (source) or partition_D of a tiled copy.
Partition partition(const TiledCopy& copy, const Composed& tensor, std::int64_t thread, bool source = true);
/// partition_A, _B or _C of a tiled mma.
Partition partition(const TiledMma& mma, Operand operand, const Composed& tensor, std::int64_t thread);
/// make_fragment_like: the registers that hold a partition, its first mode contiguous and the others in its order.
Layout make_fragment_like(const Layout& partition);

}  // namespace falchion::layout
