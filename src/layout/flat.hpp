// src/layout/flat.hpp: layouts as the lists of modes that the algebra works on.
#pragma once

#include <vector>

#include "layout/layout.hpp"

namespace falchion::layout {

inline bool is_static(Int a, std::int64_t value) { return a.is_static && a.value == value; }

/// A list of modes. A list of one mode becomes an integer, since CuTe unwraps it.
struct Flat {
  std::vector<Int> shape, stride;

  std::size_t rank() const { return shape.size(); }
  void append(Int extent, Int step) {
    shape.push_back(extent);
    stride.push_back(step);
  }
};

Flat flat(const Layout& a);
Layout unwrap(const Flat& a);
IntTuple unwrap(const std::vector<Int>& values);
IntTuple tuple_of(const std::vector<Int>& values);  ///< a tuple, even if there is only one value

/// Strides that make shape compact, the first mode fastest, from `current` on.
IntTuple compact_left(const IntTuple& shape, Int current);

/// Multiplies neighbouring extents of a shape where both are static or both are dynamic.
IntTuple coalesce_shape(const IntTuple& shape);

/// coalesce() that is also right beyond the domain, because the last mode keeps its stride even where its extent is 1.
Flat coalesce_unbounded(const Layout& a);

/// `a` with modes appended up to `rank`, like CuTe's append<rank>(a, x).
Layout padded(const Layout& a, std::size_t rank);

/// A tuple of each, mode by mode.
IntTuple zip(const IntTuple& a, const IntTuple& b);

}  // namespace falchion::layout
