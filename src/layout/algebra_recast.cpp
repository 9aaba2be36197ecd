// src/layout/algebra_recast.cpp: reads the same bytes as elements of another size.
#include <cstdlib>
#include <numeric>

#include "layout/algebra.hpp"
#include "layout/flat.hpp"

namespace falchion::layout {

namespace {

/// To larger elements: modes that step by less than one of them shrink.
Layout upcast(const Layout& a, std::int64_t n) {
  if (a.shape.is_tuple()) {
    std::vector<Layout> modes;
    for (std::size_t i = 0; i < a.rank(); ++i) modes.push_back(upcast(a.mode(i), n));
    return make_layout(modes);
  }
  const Int stride = a.stride.leaf();
  const Int width{std::abs(stride.value), true};
  if (is_static(stride, 0)) return a;
  if (!stride.is_static) return {a.shape, stride / Int{n}};
  if (width.value % n != 0 && n % width.value != 0) {
    throw Error("recast: stride " + std::to_string(stride.value) + " and the ratio of sizes " + std::to_string(n) +
                " do not divide each other");
  }
  const Int sign{stride.value > 0 ? 1 : -1};
  return {ceil_div(a.shape.leaf(), ceil_div(Int{n}, width)), sign * ceil_div(width, Int{n})};
}

/// To smaller elements: contiguous modes grow.
Layout downcast(const Layout& a, std::int64_t n) {
  if (a.shape.is_tuple()) {
    std::vector<Layout> modes;
    for (std::size_t i = 0; i < a.rank(); ++i) modes.push_back(downcast(a.mode(i), n));
    return make_layout(modes);
  }
  const Int stride = a.stride.leaf();
  if (is_static(stride, 1) || is_static(stride, -1)) return {a.shape.leaf() * Int{n}, stride};
  return {a.shape, stride * Int{n}};
}

bool has_stride_one(const IntTuple& stride) {
  if (stride.is_int()) return is_static(stride.leaf(), 1);
  for (const IntTuple& mode : stride.modes()) {
    if (has_stride_one(mode)) return true;
  }
  return false;
}

struct Ratio {
  std::int64_t up, down;
};

Ratio ratio(int from_bits, int to_bits) {
  for (const int bits : {from_bits, to_bits}) {
    if (bits < 1 || bits > 1024 || (bits & (bits - 1)) != 0) {
      throw Error("recast: elements of " + std::to_string(bits) + " bits: a power of two up to 1024 is needed");
    }
  }
  return {to_bits > from_bits ? to_bits / from_bits : 1, from_bits > to_bits ? from_bits / to_bits : 1};
}

}  // namespace

Layout recast(const Layout& a, int from_bits, int to_bits) {
  const Ratio by = ratio(from_bits, to_bits);
  if (by.up > 1) return upcast(a, by.up);
  if (by.down == 1) return a;
  if (!has_stride_one(a.stride)) {
    throw Error("recast: smaller elements need a mode of static stride _1; " + to_string(a) + " has none");
  }
  return downcast(a, by.down);
}

Composed recast(const Composed& a, int from_bits, int to_bits) {
  const Ratio by = ratio(from_bits, to_bits);
  Composed out = a;
  out.layout = recast(a.layout, from_bits, to_bits);
  if (a.element_bits > 0) {
    if (a.element_bits != from_bits) {
      throw Error("recast: " + to_string(a) + " has elements of " + std::to_string(a.element_bits) + " bits, not " +
                  std::to_string(from_bits));
    }
    out.element_bits = to_bits;  // the swizzle works on bytes, so it stays as it is
    return out;
  }
  if (a.offset.is_static && a.offset.value % by.up != 0) {
    throw Error("recast: " + std::to_string(by.up) + " does not divide the offset " + std::to_string(a.offset.value));
  }
  out.offset = by.up > 1 ? a.offset / Int{by.up} : a.offset * Int{by.down};
  if (!a.has_swizzle) return out;
  for (std::int64_t up = by.up; up > 1; up /= 2) {
    if (out.swizzle.base > 0) {
      --out.swizzle.base;
    } else if (out.swizzle.bits > 0) {
      --out.swizzle.bits;
    }
  }
  for (std::int64_t down = by.down; down > 1; down /= 2) ++out.swizzle.base;
  const Swizzle& s = out.swizzle;
  if (s.bits + s.base + std::abs(s.shift) > 31) throw Error("recast: " + to_string(s) + " reaches beyond bit 31");
  return out;
}

}  // namespace falchion::layout
