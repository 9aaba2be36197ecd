// src/layout/layout.hpp: CuTe's Layout, Swizzle and ComposedLayout, at run time.
#pragma once

#include "layout/int_tuple.hpp"

namespace falchion::layout {

/// A shape and a stride, which are congruent. A layout maps coordinates to offsets.
struct Layout {
  IntTuple shape, stride;

  std::size_t rank() const { return shape.rank(); }
  Layout mode(std::size_t i) const { return {shape.mode(i), stride.mode(i)}; }
  std::int64_t size() const;                             ///< how many coordinates
  std::int64_t cosize() const;                           ///< one more than the last offset
  std::int64_t operator()(std::int64_t index) const;     ///< offset of a 1-D coordinate, colexicographic
  std::int64_t operator()(const IntTuple& coord) const;  ///< offset of a coordinate that fits the shape at any depth
};

/// Sw<bits,base,shift>: bits [base + shift, ...) of an offset are XORed onto bits [base, ...).
struct Swizzle {
  int bits = 0, base = 0, shift = 0;
  std::int64_t operator()(std::int64_t offset) const;
};

/// Makes a swizzle of offsets in elements of this many bits from a swizzle of byte addresses.
/// For 16 bits Sw<3,4,3> becomes Sw<3,3,3>.
Swizzle in_elements(const Swizzle& swizzle, int element_bits);

/// What the parser reads and the printer writes: swizzle o offset o layout. Without a swizzle and an offset it is a
/// plain Layout. element_bits is not 0 where there is a pointer to shared memory, which CuTe prints as
/// smem_ptr[16b](unset). The swizzle then works on byte addresses, and operator() on elements.
struct Composed {
  bool has_swizzle = false;
  Swizzle swizzle;
  Int offset;
  int element_bits = 0;
  Layout layout;

  std::int64_t operator()(std::int64_t index) const;
  std::int64_t operator()(const IntTuple& coord) const;
  std::int64_t of_offset(std::int64_t linear) const;  ///< swizzle(offset + linear), in elements
};

std::string to_string(const Layout& layout);      ///< (_8,_64):(_64,_1)
std::string to_string(const Swizzle& swizzle);    ///< Sw<3,3,3>
std::string to_string(const Composed& composed);  ///< Sw<3,3,3> o _0 o (_8,_64):(_64,_1)

/// An answer with more text than this is refused before it is made.
inline constexpr std::int64_t kMostText = std::int64_t{16} << 20;

/// CuTe's print_layout of rank 2, byte for byte: the header, the column numbers, the box of offsets.
std::string print_layout(const Composed& layout);
/// CuTe's print_tensor of a tensor whose element at offset i is i, with the header that its pointer has:
/// ptr[32b](0x...) o (4,8):(8,1): and rows of %5d.
std::string print_tensor(const Composed& layout, int element_bits);

}  // namespace falchion::layout
