// src/layout/algebra_divide.cpp: divides layouts by tilers, and repeats them.
#include <algorithm>

#include "layout/algebra.hpp"
#include "layout/flat.hpp"

namespace falchion::layout {

Tiler make_tiler(const IntTuple& shape) {
  if (!shape.is_tuple()) return {false, {make_layout(shape)}, {true}};
  Tiler out{true, {}, {}};
  for (const IntTuple& mode : shape.modes()) {
    if (!mode.is_int()) throw Error("a nested shape " + to_string(mode) + " in a tiler: write its stride too");
    out.modes.push_back(make_layout(mode));
    out.integers.push_back(true);
  }
  return out;
}

Layout padded(const Layout& a, std::size_t rank) {
  if (a.rank() >= rank) return a;
  std::vector<Layout> modes;
  for (std::size_t i = 0; i < rank; ++i) modes.push_back(i < a.rank() ? a.mode(i) : Layout{Int{1}, Int{0}});
  return make_layout(modes);
}

IntTuple zip(const IntTuple& a, const IntTuple& b) {
  if (!a.is_tuple()) return std::vector<IntTuple>{std::vector<IntTuple>{a, b}};
  if (!b.is_tuple() || a.rank() != b.rank()) throw Error("cannot zip " + to_string(a) + " and " + to_string(b));
  std::vector<IntTuple> out;
  for (std::size_t i = 0; i < a.rank(); ++i) out.push_back(std::vector<IntTuple>{a.mode(i), b.mode(i)});
  return out;
}

namespace {

Layout zip(const Layout& a, const Layout& b) { return {zip(a.shape, b.shape), zip(a.stride, b.stride)}; }

Layout divide_mode(const Layout& a, const Layout& tile) {
  return composition(a, make_layout({tile, complement(tile, coalesce(a).shape)}));
}

Layout multiply_mode(const Layout& block, const Layout& tile) {
  Int cosize{1};
  const std::vector<Int> extents = flatten(tile.shape), strides = flatten(tile.stride);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Int step{strides[i].value < 0 ? -strides[i].value : strides[i].value, strides[i].is_static};
    cosize = cosize + (extents[i] - Int{1}) * step;
  }
  return make_layout({block, composition(complement(block, product(block.shape) * cosize), tile)});
}

using ByMode = Layout (*)(const Layout&, const Layout&);

Layout logical(ByMode by_mode, const char* what, const Layout& a, const Tiler& tiler) {
  if (!tiler.is_tuple) return by_mode(a, tiler.modes.at(0));
  if (tiler.modes.size() > a.rank()) {
    throw Error(std::string(what) + ": the tiler has " + std::to_string(tiler.modes.size()) + " modes, " +
                to_string(a) + " has " + std::to_string(a.rank()));
  }
  std::vector<Layout> modes;
  for (std::size_t i = 0; i < a.rank(); ++i) {
    modes.push_back(i < tiler.modes.size() ? by_mode(a.mode(i), tiler.modes[i]) : a.mode(i));
  }
  return make_layout(modes);
}

/// ((A,a),(B,b),c) -> ((A,B),(a,b,c)), so that all that belongs to the tile comes first.
Layout unzip(const Layout& a, const Tiler& tiler) {
  if (!tiler.is_tuple) return a;
  std::vector<Layout> tiles, rest;
  for (std::size_t i = 0; i < a.rank(); ++i) {
    const bool tiled = i < tiler.modes.size();
    if (tiled) tiles.push_back(a.mode(i).mode(0));
    rest.push_back(tiled ? a.mode(i).mode(1) : a.mode(i));
  }
  return make_layout({make_layout(tiles), make_layout(rest)});
}

void append_modes(const Layout& a, std::vector<Layout>* out) {
  for (std::size_t i = 0; i < a.rank(); ++i) {
    out->push_back(a.rank() == 1 ? a : a.mode(i));  // CuTe's repeat<1>(_) is no tuple, so it keeps all of a rank of 1
  }
}

/// Puts the modes of the rest, or of both parts, side by side.
Layout unpack(const Layout& a, bool both) {
  std::vector<Layout> modes;
  if (both) {
    append_modes(a.mode(0), &modes);
  } else {
    modes.push_back(a.mode(0));
  }
  append_modes(a.mode(1), &modes);
  return make_layout(modes);
}

/// Repeats a block after the ranks were made equal: (block, tile) mode by mode or, when raked, (tile, block).
Layout ranked_product(const Layout& block, const Layout& tile, bool raked) {
  const std::size_t rank = std::max(block.rank(), tile.rank());
  const Layout both = multiply_mode(padded(block, rank), padded(tile, rank));
  return raked ? zip(both.mode(1), both.mode(0)) : zip(both.mode(0), both.mode(1));
}

/// A shape alone is LayoutLeft.
Layout one_layout(const Tiler& tiler) {
  if (!tiler.is_tuple) return tiler.modes.at(0);
  std::vector<IntTuple> shape;
  for (std::size_t i = 0; i < tiler.modes.size(); ++i) {
    if (!tiler.is_integer(i)) throw Error("blocked and raked products take one layout, not one a mode");
    shape.push_back(tiler.modes[i].shape);
  }
  return make_layout(IntTuple(shape));
}

}  // namespace

Layout divide(DivideKind kind, const Layout& a, const Tiler& tiler) {
  const Layout parts = logical(divide_mode, "divide", a, tiler);
  if (kind == DivideKind::logical) return parts;
  const Layout zipped = unzip(parts, tiler);
  return kind == DivideKind::zipped ? zipped : unpack(zipped, kind == DivideKind::flat);
}

Layout product(ProductKind kind, const Layout& a, const Tiler& tiler) {
  if (kind == ProductKind::blocked || kind == ProductKind::raked) {
    return ranked_product(a, one_layout(tiler), kind == ProductKind::raked);
  }
  const Layout parts = logical(multiply_mode, "product", a, tiler);
  if (kind == ProductKind::logical) return parts;
  const Layout zipped = unzip(parts, tiler);
  return kind == ProductKind::zipped ? zipped : unpack(zipped, kind == ProductKind::flat);
}

Composed tile_to_shape(const Composed& atom, const IntTuple& shape, const IntTuple& order) {
  const Layout block = padded(atom.layout, shape.rank());
  if (block.rank() > shape.rank()) {
    throw Error("tile_to_shape: the atom " + to_string(atom.layout) + " has rank " + std::to_string(block.rank()) +
                ", the shape " + to_string(shape) + " only " + std::to_string(shape.rank()));
  }
  bool all_static = true;
  std::vector<Int> extents, targets;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    targets.push_back(product(shape.mode(i)));
    extents.push_back(product(block.shape.mode(i)));
    all_static = all_static && targets[i].is_static;
  }
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    if (all_static && extents[i].is_static && targets[i].value % extents[i].value != 0) {
      throw Error("tile_to_shape: the atom's " + std::to_string(extents[i].value) + " does not divide mode " +
                  std::to_string(i) + " of the shape, " + std::to_string(targets[i].value));
    }
    targets[i] = ceil_div(targets[i], extents[i]);
  }
  const IntTuple tiles = tuple_of(targets);
  const bool left = !order.is_tuple() || order.rank() == 0;
  Composed out = atom;
  out.layout = ranked_product(block, left ? make_layout(tiles) : make_ordered_layout(tiles, order), false);
  return out;
}

}  // namespace falchion::layout
