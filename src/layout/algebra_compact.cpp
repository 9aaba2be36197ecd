// src/layout/algebra_compact.cpp: compact strides: first mode fastest, last mode fastest, or in a given order.
#include <algorithm>

#include "layout/algebra.hpp"
#include "layout/flat.hpp"

namespace falchion::layout {

namespace {

/// The compact strides of shape, beginning with *current, which is moved past it. A static extent of 1 gets stride 0.
IntTuple compact(const IntTuple& shape, bool right, Int* current) {
  if (shape.is_underscore()) throw Error("an underscore in a shape");
  if (shape.is_int()) {
    if (is_static(shape.leaf(), 1)) return Int{0};
    const Int stride = *current;
    *current = *current * shape.leaf();
    return stride;
  }
  std::vector<IntTuple> out(shape.rank());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t mode = right ? out.size() - 1 - i : i;
    out[mode] = compact(shape.modes()[mode], right, current);
  }
  return out;
}

/// The extents that the leaves of `order` stand for.
void append_extents(const IntTuple& shape, const IntTuple& order, std::vector<Int>* out) {
  if (!order.is_tuple()) return out->push_back(product(shape));
  if (!shape.is_tuple() || shape.rank() != order.rank()) {
    throw Error("order " + to_string(order) + " does not fit shape " + to_string(shape));
  }
  for (std::size_t i = 0; i < order.rank(); ++i) append_extents(shape.mode(i), order.mode(i), out);
}

/// The strides of each mode. They are compact and begin with the product of all extents that come before in the order.
IntTuple ordered(const IntTuple& shape, const IntTuple& order, const std::vector<Int>& extents,
                 const std::vector<Int>& places, std::size_t* leaf) {
  if (!order.is_tuple()) {
    Int start{1};
    const Int here = places[(*leaf)++];
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i].value < here.value) start = start * extents[i];
    }
    return compact_left(shape, start);
  }
  std::vector<IntTuple> out;
  for (std::size_t i = 0; i < order.rank(); ++i) {
    out.push_back(ordered(shape.mode(i), order.mode(i), extents, places, leaf));
  }
  return out;
}

}  // namespace

IntTuple compact_left(const IntTuple& shape, Int current) { return compact(shape, false, &current); }

Layout make_layout(const IntTuple& shape) { return {shape, compact_left(shape, Int{1})}; }

Layout make_layout_right(const IntTuple& shape) {
  Int current{1};
  return {shape, compact(shape, true, &current)};
}

Layout make_ordered_layout(const IntTuple& shape, const IntTuple& order) {
  std::vector<Int> extents, places = flatten(order);
  append_extents(shape, order, &extents);
  // Dynamic places come behind all static ones, in the order in which they are
  // written, because CuTe cannot compare them.
  std::int64_t behind = 0;
  for (const Int place : places) behind = place.is_static ? std::max(behind, place.value) : behind;
  for (Int& place : places) {
    ++behind;
    if (!place.is_static) place = Int{behind};
  }
  std::size_t leaf = 0;
  return {shape, ordered(shape, order, extents, places, &leaf)};
}

}  // namespace falchion::layout
