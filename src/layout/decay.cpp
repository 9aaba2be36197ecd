// src/layout/decay.cpp: CuTe's slice_and_offset of a swizzled layout. Of an offset's bits the swizzle looks at Y and
// changes Z. A slice that moves only one of the two has strides again, but their signs depend on the other.
#include "layout/decay.hpp"

#include <cstdlib>

#include "layout/checked.hpp"

namespace falchion::layout {
namespace {

/// The bits of an offset that a layout can set: CuTe tells by the last of each mode, all sizes being powers of 2.
std::int64_t bits_of(const Layout& layout) {
  std::int64_t bits = 0;
  const std::vector<Int> shape = flatten(layout.shape), stride = flatten(layout.stride);
  for (std::size_t i = 0; i < shape.size(); ++i) bits |= multiply(shape[i].value - 1, std::abs(stride[i].value));
  return bits;
}
bool all_static(const IntTuple& t) {
  for (const Int leaf : flatten(t))
    if (!leaf.is_static) return false;
  return true;
}

struct Masks {
  std::int64_t y, z, y_low, z_low;
  explicit Masks(const Swizzle& s) {
    const std::int64_t ones = (std::int64_t{1} << s.bits) - 1;
    y = ones << (s.base + (s.shift > 0 ? s.shift : 0));
    z = ones << (s.base + (s.shift > 0 ? 0 : -s.shift));
    y_low = y & -y;
    z_low = z & -z;
  }
};

/// offset -> swizzled, for offsets that hit Y or Z but not both, relative to `start`. maybe: the bits of start that
/// nobody knows before the kernel runs; a stride that depends on one of them is dynamic.
Layout unswizzled(const Swizzle& s, const Masks& masks, std::int64_t start, std::int64_t maybe) {
  const auto stride = [&](bool of_z, int i) {
    const std::int64_t other = (of_z ? masks.y_low : masks.z_low) << i;
    const bool set = (start & other) != 0, known = (maybe & other) == 0;
    const std::int64_t z = masks.z_low << i, y = masks.y_low << i;
    return Int{of_z ? (set ? -z : z) : (set ? y - z : y + z), known};
  };
  const bool z_is_low = masks.z_low < masks.y_low;
  std::vector<IntTuple> low, high;
  for (int i = 0; i < s.bits; ++i) {
    low.push_back(stride(z_is_low, i));
    high.push_back(stride(!z_is_low, i));
  }
  const int distance = std::abs(s.shift);
  const std::int64_t one = 1;
  const IntTuple twos(std::vector<IntTuple>(low.size(), Int{2}));
  return {
      IntTuple(std::vector<IntTuple>{Int{one << s.base}, twos, Int{one << (distance - s.bits)}, twos, Int{one << 30}}),
      IntTuple(std::vector<IntTuple>{Int{1}, IntTuple(low), Int{one << (s.base + s.bits)}, IntTuple(high),
                                     Int{one << (s.base + s.bits + distance)}})};
}

}  // namespace

Partition decayed(const Composed& tensor, const Layout& consumed, const Slice& slice) {
  Partition result{tensor, 0, slice.offset_of};
  result.layout.layout = slice.layout;
  result.start = tensor.of_offset(slice.offset_of);
  if (!tensor.has_swizzle) {
    result.layout.offset = Int{0};
    return result;
  }
  const Swizzle& s = tensor.swizzle;
  if (tensor.element_bits > 0 || s.bits == 0) return result;  // the swizzle belongs to the pointer and stays there
  const Masks masks(s);
  const std::int64_t linear = add(tensor.offset.value, slice.offset_of), both = masks.y | masks.z;
  const std::int64_t moved = bits_of(slice.layout) & both;
  const bool meets = (moved & ~s(moved)) != 0 || !all_static(slice.layout.shape) || !all_static(slice.layout.stride);
  const bool in_reach = std::abs(s.shift) >= s.bits && s.base + s.bits + std::abs(s.shift) <= 30;
  if (meets || !in_reach) {
    result.layout.offset = Int{linear & both, bits_of(consumed) == 0};
    result.start = linear & ~both;
    return result;
  }
  const std::int64_t maybe = tensor.offset.is_static ? bits_of(consumed) : both;
  result.layout = Composed{};
  result.layout.layout = composition(unswizzled(s, masks, linear, maybe), slice.layout);
  return result;
}

}  // namespace falchion::layout
