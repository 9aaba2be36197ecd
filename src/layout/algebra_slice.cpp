// src/layout/algebra_slice.cpp: parts of a layout, which are slices, tiles and what one thread gets; and the conversion
// of indices to coordinates and back.
#include <algorithm>
#include <cstdlib>

#include "layout/algebra.hpp"
#include "layout/flat.hpp"

namespace falchion::layout {

namespace {

constexpr std::int64_t kMostCoordinates = std::int64_t{1} << 22;

bool has_underscore(const IntTuple& coord) {
  return coord.is_underscore() || std::ranges::any_of(coord.modes(), has_underscore);
}

/// Appends the modes of t whose coordinate is an underscore (with `kept`), or those whose coordinate is not.
void append_picked(const IntTuple& coord, const IntTuple& t, bool kept, std::vector<IntTuple>* out) {
  if (coord.is_tuple()) {
    if (!t.is_tuple() || t.rank() != coord.rank()) {
      throw Error("coordinate " + to_string(coord) + " does not fit " + to_string(t));
    }
    for (std::size_t i = 0; i < coord.rank(); ++i) append_picked(coord.mode(i), t.mode(i), kept, out);
  } else if (coord.is_underscore() == kept) {
    out->push_back(t);
  }
}

IntTuple pick(const IntTuple& coord, const IntTuple& t, bool kept) {
  if (!coord.is_tuple() && coord.is_underscore() == kept) return t;
  std::vector<IntTuple> out;
  append_picked(coord, t, kept, &out);
  return out;
}

Layout pick(const IntTuple& coord, const Layout& a, bool kept) {
  return {pick(coord, a.shape, kept), pick(coord, a.stride, kept)};
}

IntTuple underscores(std::size_t n) {
  if (n == 1) return IntTuple::underscore();
  return std::vector<IntTuple>(n, IntTuple::underscore());
}

/// coord, with underscores for the modes that it does not name.
IntTuple with_underscores(const IntTuple& coord, std::size_t rank) {
  if (!coord.is_tuple()) return coord;
  std::vector<IntTuple> out = coord.modes();
  if (out.size() > rank) {
    throw Error("coordinate " + to_string(coord) + " has more than " + std::to_string(rank) + " modes");
  }
  out.resize(rank, IntTuple::underscore());
  return out;
}

/// A divided layout, and the coordinate that cuts a part from it.
struct Cut {
  Layout divided;
  IntTuple coord;
};

Cut cut_tile(const Layout& a, const IntTuple& tile, const IntTuple& coord) {
  const Layout divided = divide(DivideKind::zipped, a, make_tiler(tile));
  return {divided,
          std::vector<IntTuple>{underscores(divided.mode(0).rank()), with_underscores(coord, divided.mode(1).rank())}};
}

/// The coordinate of a thread in a layout of threads, which is the one whose offset is the thread's index.
IntTuple hier_coord(std::int64_t index, const IntTuple& shape, const IntTuple& stride) {
  if (shape.is_int()) {
    if (is_static(shape.leaf(), 1)) return Int{0};
    return Int{index, false} / stride.leaf() % shape.leaf();
  }
  std::vector<IntTuple> out;
  for (std::size_t i = 0; i < shape.rank(); ++i) out.push_back(hier_coord(index, shape.mode(i), stride.mode(i)));
  return out;
}

Cut cut_thread(const Layout& a, const Layout& threads, std::int64_t thread) {
  if (thread < 0) throw Error("thread " + std::to_string(thread) + " of " + to_string(threads) + ": at least 0");
  std::vector<IntTuple> tile, coord;
  const IntTuple where = hier_coord(thread, threads.shape, threads.stride);
  for (std::size_t i = 0; i < threads.rank(); ++i) {
    tile.push_back(product(threads.shape.mode(i)));
    const std::int64_t at = crd2idx(where.mode(i), threads.shape.mode(i));
    coord.push_back(Int{at, where.mode(i).is_int() && where.mode(i).leaf().is_static});
  }
  const Layout divided = divide(DivideKind::zipped, a, make_tiler(tile));
  return {divided,
          std::vector<IntTuple>{with_underscores(coord, divided.mode(0).rank()), underscores(divided.mode(1).rank())}};
}

/// The value of an offset, and which of its bits a program knows only at run time.
struct MixedBits {
  std::int64_t value = 0, dynamic = 0;
};

MixedBits mixed_bits(const IntTuple& coord, const IntTuple& shape, const IntTuple& stride) {
  MixedBits out;
  if (shape.is_int()) {
    const Int at = coord.leaf() * stride.leaf();
    out.value = at.value;
    out.dynamic = at.is_static ? 0 : ((shape.leaf() - Int{1}) * stride.leaf()).value;
    return out;
  }
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    const MixedBits mode = mixed_bits(coord.mode(i), shape.mode(i), stride.mode(i));
    out.value ^= mode.value;
    out.dynamic |= mode.dynamic;
  }
  return out;
}

IntTuple split(const IntTuple& coord, const IntTuple& shape) {
  if (coord.is_tuple() && coord.rank() == shape.rank() && shape.is_tuple()) {
    std::vector<IntTuple> out;
    for (std::size_t i = 0; i < coord.rank(); ++i) out.push_back(split(coord.mode(i), shape.mode(i)));
    return out;
  }
  if (!shape.is_tuple()) return coord;
  if (!coord.is_int()) throw Error("coordinate " + to_string(coord) + " does not fit " + to_string(shape));
  Int rest = coord.leaf();
  std::vector<IntTuple> out;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    const Int size = product(shape.mode(i));
    const bool last = i + 1 == shape.rank();
    out.push_back(split(last ? rest : rest % size, shape.mode(i)));
    if (!last) rest = rest / size;
  }
  return out;
}

/// A layout that keeps, of an offset, only the bits that a swizzle reads and writes, or only all others.
Layout projection(const Swizzle& s, bool swizzled) {
  const int apart = std::abs(s.shift);
  auto power = [](int n) { return Int{std::int64_t{1} << n}; };
  const Int zero{0};
  Flat out;
  out.append(power(s.base), swizzled ? zero : Int{1});
  out.append(power(s.bits), swizzled ? power(s.base) : zero);
  out.append(power(apart - s.bits), swizzled ? zero : power(s.base + s.bits));
  out.append(power(s.bits), swizzled ? power(s.base + apart) : zero);
  out.append(Int{1}, swizzled ? zero : power(s.base + apart + s.bits));
  return unwrap(out);
}

bool all_static(const IntTuple& t) {
  return t.is_int() ? t.leaf().is_static : std::ranges::all_of(t.modes(), all_static);
}

/// A swizzle as a layout. This is possible for offsets that start at `at` and never change both a bit and the bit that
/// is XORed onto it.
Layout unswizzled(const Swizzle& s, const MixedBits& at) {
  const int apart = std::abs(s.shift);
  const std::int64_t low = std::int64_t{1} << s.base;
  const std::int64_t high = low << apart;
  Flat out;
  out.append(Int{low}, Int{1});
  auto strides = [&](std::int64_t bit, std::int64_t partner, bool written) {
    for (int i = 0; i < s.bits; ++i) {
      const bool is_static = ((partner << i) & at.dynamic) == 0, set = ((partner << i) & at.value) != 0;
      const std::int64_t stride = written ? (set ? -bit : bit) : bit + (set ? -partner : partner);
      out.append(Int{2}, Int{stride << i, is_static});
    }
  };
  strides(low, high, s.shift > 0);
  out.append(Int{std::int64_t{1} << (apart - s.bits)}, Int{low << s.bits});
  strides(high, low, s.shift < 0);
  out.append(Int{1}, Int{high << s.bits});
  return unwrap(out);
}

}  // namespace

Slice slice(const Layout& a, const IntTuple& coord) { return {pick(coord, a, true), a(coord)}; }

ComposedSlice slice(const Composed& a, const IntTuple& coord) {
  Composed out = a;
  if (a.element_bits > 0 && a.has_swizzle) out.swizzle = in_elements(a.swizzle, a.element_bits);
  out.element_bits = 0;
  if (!a.has_swizzle || out.swizzle.bits == 0) {
    const Slice plain = slice(a.layout, coord);
    out = {};
    out.layout = plain.layout;
    return {out, a.offset.value + plain.offset_of};
  }
  out.layout = pick(coord, a.layout, true);
  if (!has_underscore(coord)) return {{false, {}, {}, 0, out.layout}, a(coord)};
  if (coord.is_underscore()) return {out, 0};
  const Swizzle& swizzle = out.swizzle;
  const Layout swizzled = projection(swizzle, true), others = projection(swizzle, false);
  const Layout consumed = pick(coord, a.layout, false);
  const IntTuple at = pick(coord, coord, false);
  MixedBits offset{a.offset.value, a.offset.is_static ? 0 : -1};
  std::int64_t passed = 0;
  if (at.rank() > 0) {
    const Layout part = composition(swizzled, consumed);
    const MixedBits moved = mixed_bits(split(at, part.shape), part.shape, part.stride);
    offset = {offset.value ^ moved.value, offset.dynamic | moved.dynamic};
    passed = composition(others, consumed)(at);
  }
  const Layout part = composition(swizzled, out.layout);
  const std::int64_t active = part(part.size() - 1);
  const bool known = all_static(part.shape) && all_static(part.stride);
  if (known && (active & ~swizzle(active)) != 0) {
    out.offset = {offset.value, offset.dynamic == 0};
    return {out, passed};
  }
  Composed plain;
  plain.layout = composition(unswizzled(swizzle, offset), out.layout);
  return {plain, swizzle(offset.value) + passed};
}

Slice local_tile(const Layout& a, const IntTuple& tile, const IntTuple& coord) {
  const Cut cut = cut_tile(a, tile, coord);
  return slice(cut.divided, cut.coord);
}

ComposedSlice local_tile(const Composed& a, const IntTuple& tile, const IntTuple& coord) {
  const Cut cut = cut_tile(a.layout, tile, coord);
  Composed divided = a;
  divided.layout = cut.divided;
  return slice(divided, cut.coord);
}

Slice local_partition(const Layout& a, const Layout& threads, std::int64_t thread) {
  const Cut cut = cut_thread(a, threads, thread);
  return slice(cut.divided, cut.coord);
}

ComposedSlice local_partition(const Composed& a, const Layout& threads, std::int64_t thread) {
  const Cut cut = cut_thread(a.layout, threads, thread);
  Composed divided = a;
  divided.layout = cut.divided;
  return slice(divided, cut.coord);
}

IntTuple idx2crd(std::int64_t index, const IntTuple& shape) { return split(Int{index, false}, shape); }

std::int64_t crd2idx(const IntTuple& coord, const IntTuple& shape) { return make_layout(shape)(coord); }

bool is_injective(const Layout& a) {
  if (a.size() > kMostCoordinates) {
    throw Error("is_injective: " + to_string(a) + " has more than " + std::to_string(kMostCoordinates) +
                " coordinates");
  }
  std::vector<std::int64_t> offsets{0};
  const std::vector<Int> shape = flatten(a.shape), stride = flatten(a.stride);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t before = offsets.size();
    for (std::int64_t at = 1; at < shape[i].value; ++at) {
      for (std::size_t j = 0; j < before; ++j) offsets.push_back(offsets[j] + at * stride[i].value);
    }
  }
  std::ranges::sort(offsets);
  return std::ranges::adjacent_find(offsets) == offsets.end();
}

namespace {

IntTuple known(const IntTuple& t) {
  if (t.is_int()) return Int{t.value()};
  std::vector<IntTuple> out;
  for (const IntTuple& mode : t.modes()) out.push_back(known(mode));
  return out;
}

}  // namespace

std::int64_t contiguous_elements(const Composed& a) {
  const std::int64_t run = right_inverse({known(a.layout.shape), known(a.layout.stride)}).size();
  if (!a.has_swizzle) return run;
  const Swizzle s = a.element_bits > 0 ? in_elements(a.swizzle, a.element_bits) : a.swizzle;
  return s.bits > 0 ? std::min(run, std::int64_t{1} << s.base) : run;
}

}  // namespace falchion::layout
