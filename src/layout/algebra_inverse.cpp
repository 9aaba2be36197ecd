// src/layout/algebra_inverse.cpp: what a layout leaves out (complement), and what undoes it (inverses).
#include <algorithm>
#include <numeric>

#include "layout/algebra.hpp"
#include "layout/flat.hpp"

namespace falchion::layout {

namespace {

/// ceil_div of a shape by an integer. Each mode is divided by what the modes before it have left of the integer.
IntTuple divide_shape(const IntTuple& shape, Int* by) {
  if (shape.is_int()) {
    const Int extent = shape.leaf();
    const Int out = ceil_div(extent, *by);
    *by = ceil_div(*by, extent);
    return out;
  }
  std::vector<IntTuple> out;
  for (const IntTuple& mode : shape.modes()) out.push_back(divide_shape(mode, by));
  return out;
}

IntTuple divide_modes(const IntTuple& shape, Int by) {
  if (shape.is_underscore()) throw Error("an underscore in a shape");
  if (shape.is_int()) return ceil_div(shape.leaf(), by);
  return divide_shape(shape, &by);
}

Int gap(Int stride, Int behind) {
  const Int out = stride / behind;
  if (out.value == 0) {
    throw Error("complement: the layout is not injective: stride " + std::to_string(stride.value) +
                " lies inside a mode that ends at " + std::to_string(behind.value));
  }
  return out;
}

/// The positions of the keys in rising order. CuTe sorts by exchanging, which is not stable, and equal keys must come
/// out in the same order as there.
std::vector<std::size_t> sorted(const std::vector<Int>& keys, std::vector<std::size_t> order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      if (keys[order[j]].value < keys[order[i]].value) std::swap(order[i], order[j]);
    }
  }
  return order;
}

/// The product of all modes before each.
std::vector<Int> before(const std::vector<Int>& shape) {
  std::vector<Int> out{Int{1}};
  for (const Int extent : shape) out.push_back(extent * out.back());
  return out;
}

}  // namespace

Layout complement(const Layout& a, const IntTuple& cotarget) {
  for (const Int extent : flatten(cotarget)) {
    if (extent.value < 1) throw Error("complement: " + to_string(cotarget) + " is to be filled: it must be at least 1");
  }
  for (const Int stride : flatten(a.stride)) {
    if (stride.value < 0) throw Error("complement: " + to_string(a) + " has a stride below 0");
  }
  Flat left = flat(coalesce(filter_zeros(a)));
  if (left.rank() == 1 && is_static(left.stride[0], 0)) return make_layout(coalesce_shape(cotarget));
  const bool all_static = std::ranges::all_of(left.stride, [](Int stride) { return stride.is_static; });
  if (left.rank() > 1 && !all_static) {
    throw Error("complement: " + to_string(a) + " has dynamic strides and more than one mode; CuTe needs static ones");
  }
  Flat out;
  Int behind{1};
  while (left.rank() > 0) {
    const auto least = std::ranges::min_element(left.stride, {}, &Int::value) - left.stride.begin();
    out.append(gap(left.stride[least], behind), behind);
    behind = left.stride[least] * left.shape[least];
    left.shape.erase(left.shape.begin() + least);
    left.stride.erase(left.stride.begin() + least);
  }
  const IntTuple rest = coalesce_shape(divide_modes(cotarget, behind));
  const Layout modes{tuple_of(out.shape), tuple_of(out.stride)};
  return coalesce(make_layout({modes, {rest, compact_left(rest, behind)}}));
}

Layout right_inverse(const Layout& a) {
  const Flat modes = flat(coalesce(a));
  const std::vector<Int> starts = before(modes.shape);
  std::vector<std::size_t> known;
  for (std::size_t i = 0; i < modes.rank(); ++i) {
    if (modes.stride[i].is_static) known.push_back(i);
  }
  Flat out{{Int{1}}, {Int{0}}};
  Int next{1};
  for (const std::size_t i : sorted(modes.stride, known)) {
    if (!is_static(next, modes.stride[i].value)) continue;
    out.append(modes.shape[i], starts[i]);
    next = modes.shape[i] * modes.stride[i];
  }
  return coalesce(unwrap(out));
}

Layout left_inverse(const Layout& a) {
  const Flat modes = flat(coalesce(a));
  const std::vector<Int> starts = before(modes.shape);
  for (const Int stride : modes.stride) {
    if (!stride.is_static || stride.value < 0) {
      throw Error("left_inverse: " + to_string(a) + " needs static strides of at least 0");
    }
  }
  std::vector<std::size_t> all(modes.rank());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const std::vector<std::size_t> order = sorted(modes.stride, all);
  Flat out;
  out.stride.push_back(Int{0});
  Int size{1};
  for (const std::size_t i : order) {
    const Int stride = modes.stride[i];
    if (stride.value == 0) continue;
    if ((stride % size).value != 0) {
      throw Error("left_inverse: stride " + std::to_string(stride.value) + " of " + to_string(a) +
                  " is no multiple of " + std::to_string(size.value));
    }
    const Int extent = stride / size;
    out.append(extent, starts[i]);
    size = size * extent;
  }
  out.shape.push_back(modes.shape[order.back()]);
  return coalesce(unwrap(out));
}

}  // namespace falchion::layout
