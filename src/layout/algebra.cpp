// src/layout/algebra.cpp: makes layouts, coalesces them and composes them.
#include "layout/algebra.hpp"

#include <algorithm>
#include <cstdlib>

#include "layout/flat.hpp"

namespace falchion::layout {

namespace {

constexpr std::size_t kMostModes = std::size_t{1} << 12;  // twice what an expression can be written with

Int absolute(Int a) { return {std::abs(a.value), a.is_static}; }
Int sign(Int a) { return {(a.value > 0) - (a.value < 0), a.is_static}; }

void refuse_empty(const Flat& a, const Layout& layout) {
  if (a.rank() == 0) throw Error(to_string(layout) + " has no modes");
}

/// Goes backwards over the modes [0, at) and keeps the result in reverse order. It merges neighbouring modes that are
/// statically known to be one run.
Flat merge_modes(const Flat& old, std::size_t at, Int shape, Int stride) {
  Flat out{{shape}, {stride}};
  while (at-- > 0) {
    const Int extent = old.shape[at];
    const Int step = old.stride[at];
    const Int run = extent * step;
    Int &front = out.shape.back(), &front_step = out.stride.back();
    if (is_static(extent, 1)) continue;
    if (out.rank() == 1 && is_static(front, 1)) {
      front = extent;
      front_step = step;
    } else if (front.is_static && run.is_static && is_static(front_step, run.value)) {
      front = extent * front;
      front_step = step;
    } else {
      out.append(extent, step);
    }
  }
  std::ranges::reverse(out.shape);
  std::ranges::reverse(out.stride);
  if (out.rank() == 1 && is_static(out.shape[0], 1)) out.stride[0] = Int{0};
  return out;
}

IntTuple filter_zero_strides(const IntTuple& shape, const IntTuple& stride) {
  if (shape.is_int()) return is_static(stride.leaf(), 0) ? Int{1} : shape.leaf();
  std::vector<IntTuple> out;
  for (std::size_t i = 0; i < shape.rank(); ++i) out.push_back(filter_zero_strides(shape.mode(i), stride.mode(i)));
  return out;
}

}  // namespace

Flat flat(const Layout& a) {
  Flat out{flatten(a.shape), flatten(a.stride)};
  refuse_empty(out, a);
  return out;
}

IntTuple tuple_of(const std::vector<Int>& values) { return std::vector<IntTuple>(values.begin(), values.end()); }

IntTuple unwrap(const std::vector<Int>& values) { return values.size() == 1 ? IntTuple(values[0]) : tuple_of(values); }

Layout unwrap(const Flat& a) { return {unwrap(a.shape), unwrap(a.stride)}; }

Layout make_layout(const std::vector<Layout>& modes) {
  std::vector<IntTuple> shape, stride;
  for (const Layout& mode : modes) {
    shape.push_back(mode.shape);
    stride.push_back(mode.stride);
  }
  return {shape, stride};
}

Layout flatten(const Layout& a) {
  if (!a.shape.is_tuple()) return a;
  return {tuple_of(flatten(a.shape)), tuple_of(flatten(a.stride))};
}

Layout coalesce(const Layout& a) {
  const Flat modes = flat(a);
  return unwrap(merge_modes(modes, modes.rank() - 1, modes.shape.back(), modes.stride.back()));
}

Flat coalesce_unbounded(const Layout& a) {
  const Flat modes = flat(a);
  const Int last = modes.shape.back();
  return merge_modes(modes, modes.rank() - 1, is_static(last, 1) ? Int{2} : last, modes.stride.back());
}

Layout coalesce_by_mode(const Layout& a) {
  if (!a.shape.is_tuple()) return coalesce(a);
  std::vector<Layout> modes;
  for (std::size_t i = 0; i < a.rank(); ++i) modes.push_back(coalesce(a.mode(i)));
  return make_layout(modes);
}

IntTuple coalesce_shape(const IntTuple& shape) {
  std::vector<Int> out;
  for (const Int extent : flatten(shape)) {
    if (!out.empty() && out.back().is_static == extent.is_static) {
      out.back() = out.back() * extent;
    } else {
      out.push_back(extent);
    }
  }
  return unwrap(out);
}

Layout filter_zeros(const Layout& a) { return {filter_zero_strides(a.shape, a.stride), a.stride}; }

namespace {

void refuse_composition(const char* what, Int a, Int b) {
  throw Error(std::string("composition: the ") + what + " condition fails: " + to_string(IntTuple(a)) + " and " +
              to_string(IntTuple(b)) + " do not divide each other");
}

/// Composes one integer mode of the right layout with the left one, whose modes it walks along.
Layout compose_mode(const Flat& left, Int shape, Int stride) {
  if (is_static(stride, 0)) return {shape, stride};
  if (left.rank() == 1) return {shape, stride * left.stride[0]};
  Flat out;
  Int rest = shape, step = stride;
  for (std::size_t i = 0; i + 1 < left.rank(); ++i) {
    const Int extent = left.shape[i];
    if (extent.is_static && step.is_static && (step % extent).value != 0 && step.value >= extent.value) {
      refuse_composition("stride divisibility", step, extent);
    }
    const Int next_shape = ceil_div(extent, absolute(step));
    const Int next_step = ceil_div(absolute(step), extent) * sign(step);
    if (!is_static(next_shape, 1) && !is_static(rest, 1)) {
      const Int fits{std::min(next_shape.value, rest.value), next_shape.is_static && rest.is_static};
      if (fits.is_static && (rest % fits).value != 0) refuse_composition("shape divisibility", rest, fits);
      out.append(fits, step * left.stride[i]);
      rest = rest / fits;
    }
    step = next_step;
  }
  if (out.rank() == 0 || !is_static(rest, 1)) out.append(rest, step * left.stride.back());
  return unwrap(out);
}

Layout compose(const Flat& left, const IntTuple& shape, const IntTuple& stride, std::size_t* modes) {
  if (!shape.is_tuple()) {
    Layout out = compose_mode(left, shape.leaf(), stride.leaf());
    *modes += out.rank();
    if (*modes > kMostModes)
      throw Error("composition: the result has more than " + std::to_string(kMostModes) + " modes");
    return out;
  }
  std::vector<Layout> out;
  for (std::size_t i = 0; i < shape.rank(); ++i) out.push_back(compose(left, shape.mode(i), stride.mode(i), modes));
  return make_layout(out);
}

}  // namespace

Layout composition(const Layout& a, const Layout& b) {
  std::size_t modes = 0;
  return compose(coalesce_unbounded(a), b.shape, b.stride, &modes);
}

Layout composition(const Layout& a, const Tiler& b) {
  if (!b.is_tuple) return composition(a, b.modes.at(0));
  if (b.modes.size() > a.rank()) {
    throw Error("composition: the tiler has " + std::to_string(b.modes.size()) + " modes, " + to_string(a) + " has " +
                std::to_string(a.rank()));
  }
  std::vector<Layout> modes;
  for (std::size_t i = 0; i < b.modes.size(); ++i) {
    const Layout mode = b.is_integer(i) ? Layout{b.modes[i].shape, Int{1}} : b.modes[i];
    modes.push_back(composition(a.mode(i), mode));
  }
  return make_layout(modes);
}

Composed composition(const Composed& a, const Layout& b) {
  Composed out = a;
  out.layout = composition(a.layout, b);
  return out;
}

}  // namespace falchion::layout
