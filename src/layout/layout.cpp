// src/layout/layout.cpp: the offset that a layout, a swizzle, or both of them give to a coordinate.
#include "layout/layout.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "layout/checked.hpp"

namespace falchion::layout {

namespace {

/// The offset of a 1-D coordinate. The last mode takes what is left over, so as in CuTe it goes on beyond the size.
std::int64_t offset_of(std::int64_t index, const IntTuple& shape, const IntTuple& stride) {
  if (!shape.is_tuple()) return multiply(index, stride.value());
  std::int64_t out = 0;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    std::int64_t here = index;
    if (i + 1 < shape.rank()) {
      const std::int64_t size = product(shape.modes()[i]).value;
      if (size == 0) throw Error("shape " + to_string(shape) + " has no coordinates");
      here = index % size;
      index /= size;
    }
    out = add(out, offset_of(here, shape.modes()[i], stride.modes()[i]));
  }
  return out;
}

std::int64_t offset_of(const IntTuple& coord, const IntTuple& shape, const IntTuple& stride) {
  if (coord.is_underscore()) return 0;
  if (coord.is_int()) return offset_of(coord.value(), shape, stride);
  if (!shape.is_tuple() || coord.rank() != shape.rank()) {
    throw Error("coordinate " + to_string(coord) + " does not fit shape " + to_string(shape));
  }
  std::int64_t out = 0;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    out = add(out, offset_of(coord.modes()[i], shape.modes()[i], stride.modes()[i]));
  }
  return out;
}

std::int64_t last_offset(const IntTuple& shape, const IntTuple& stride) {
  if (shape.is_int()) return multiply(shape.value() - 1, std::abs(stride.value()));
  std::int64_t out = 0;
  for (std::size_t i = 0; i < shape.rank(); ++i) out = add(out, last_offset(shape.modes()[i], stride.modes()[i]));
  return out;
}

}  // namespace

std::int64_t Layout::size() const { return product(shape).value; }
std::int64_t Layout::cosize() const { return add(last_offset(shape, stride), 1); }
std::int64_t Layout::operator()(std::int64_t index) const { return offset_of(index, shape, stride); }
std::int64_t Layout::operator()(const IntTuple& coord) const { return offset_of(coord, shape, stride); }

std::int64_t Swizzle::operator()(std::int64_t offset) const {
  const std::int64_t mask = (std::int64_t{1} << bits) - 1;
  if (shift >= 0) return offset ^ ((offset & (mask << (base + shift))) >> shift);
  return offset ^ ((offset & (mask << base)) << -shift);
}

Swizzle in_elements(const Swizzle& swizzle, int element_bits) {
  if (element_bits < 1 || element_bits > 1024 || !std::has_single_bit(static_cast<unsigned>(element_bits))) {
    throw Error("elements of " + std::to_string(element_bits) + " bits: a power of two up to 1024 is needed");
  }
  const int base = swizzle.base + 3 - std::countr_zero(static_cast<unsigned>(element_bits));
  if (base >= 0) return {swizzle.bits, base, swizzle.shift};
  return {std::max(swizzle.bits + base, 0), 0, swizzle.shift};
}

std::int64_t Composed::of_offset(std::int64_t linear) const {
  const std::int64_t at = add(offset.value, linear);
  if (!has_swizzle) return at;
  return element_bits == 0 ? swizzle(at) : in_elements(swizzle, element_bits)(at);
}

std::int64_t Composed::operator()(std::int64_t index) const { return of_offset(layout(index)); }
std::int64_t Composed::operator()(const IntTuple& coord) const { return of_offset(layout(coord)); }

}  // namespace falchion::layout
