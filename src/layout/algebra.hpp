// src/layout/algebra.hpp: CuTe's layout algebra. Each function does what CuTe's of the same name does, to the printed
// character, static and dynamic integers included.
#pragma once

#include <vector>

#include "layout/layout.hpp"

namespace falchion::layout {

Layout make_layout(const IntTuple& shape);             ///< LayoutLeft: first mode fastest
Layout make_layout_right(const IntTuple& shape);       ///< LayoutRight
Layout make_layout(const std::vector<Layout>& modes);  ///< a mode from each
Layout make_ordered_layout(const IntTuple& shape, const IntTuple& order);

/// A tiler is one layout, or one layout for each mode. The latter is written "<3:3,(2,4):(1,8)>", or as a shape, whose
/// modes are then layouts of stride 1.
struct Tiler {
  bool is_tuple = false;
  std::vector<Layout> modes;   // one where is_tuple is false
  std::vector<bool> integers;  // which modes are integers (1 is 1:0 in a division, 1:1 in a composition); empty: none
  bool is_integer(std::size_t i) const { return i < integers.size() && integers[i]; }
};
Tiler make_tiler(const IntTuple& shape);  ///< of integers, one a mode

Layout coalesce(const Layout& a);
Layout coalesce_by_mode(const Layout& a);  ///< each top mode by itself: the rank stays
Layout filter_zeros(const Layout& a);
Layout flatten(const Layout& a);
Layout composition(const Layout& a, const Layout& b);
Layout composition(const Layout& a, const Tiler& b);
Composed composition(const Composed& a, const Layout& b);
Layout complement(const Layout& a, const IntTuple& cotarget);
Layout right_inverse(const Layout& a);
Layout left_inverse(const Layout& a);

enum class DivideKind { logical, zipped, tiled, flat };
enum class ProductKind { logical, zipped, tiled, flat, blocked, raked };
Layout divide(DivideKind kind, const Layout& a, const Tiler& tiler);
Layout product(ProductKind kind, const Layout& a, const Tiler& tiler);

/// order: as in CuTe's Step, empty for LayoutLeft.
Composed tile_to_shape(const Composed& atom, const IntTuple& shape, const IntTuple& order);
Layout recast(const Layout& a, int from_bits, int to_bits);
Composed recast(const Composed& a, int from_bits, int to_bits);

/// The part of a layout that a coordinate with underscores keeps (the modes of the underscores), and the offset at
/// which it starts.
struct Slice {
  Layout layout;
  std::int64_t offset_of = 0;
};
Slice slice(const Layout& a, const IntTuple& coord);

/// The same for a swizzled layout. As in CuTe, the swizzle goes into the strides and the offset where the kept modes do
/// not touch both of its groups of bits. A stride that depends on dynamic coordinates is dynamic.
struct ComposedSlice {
  Composed layout;
  std::int64_t offset_of = 0;
};
ComposedSlice slice(const Composed& a, const IntTuple& coord);

/// The part of a tensor that a thread block gets (local_tile: the tile at coord), and the part that a thread gets
/// (local_partition: its elements of each tile of threads).
Slice local_tile(const Layout& a, const IntTuple& tile, const IntTuple& coord);
Slice local_partition(const Layout& a, const Layout& threads, std::int64_t thread);
ComposedSlice local_tile(const Composed& a, const IntTuple& tile, const IntTuple& coord);
ComposedSlice local_partition(const Composed& a, const Layout& threads, std::int64_t thread);

/// 1-D index <-> coordinates: idx2crd(5, (3,(2,3))) = (2,(1,0)); crd2idx back.
IntTuple idx2crd(std::int64_t index, const IntTuple& shape);
std::int64_t crd2idx(const IntTuple& coord, const IntTuple& shape);

bool is_injective(const Layout& a);
/// How many elements lie next to each other from the first on, in whatever order. A
/// vectorised copy may take that many at once.
std::int64_t contiguous_elements(const Composed& a);

}  // namespace falchion::layout
