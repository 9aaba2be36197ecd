// src/gpu/blocks/fragments.cuh: views the accumulators of a thread as a matrix, and rounds them to 16-bit numbers. It
// serves both mma.sync and wgmma, which lay out the accumulators of a warp in the same way.
#pragma once

#include <cutlass/numeric_conversion.h>

#include <cute/tensor.hpp>

#include "base/host_device.hpp"

namespace falchion::gpu {

using namespace cute;

/// Turns the layout of an accumulator C, which is ((2 columns, 2 rows), M, N), into (rows, columns) of this thread:
/// ((2, M), (2, N)).
template <class Layout_>
FALCHION_DEVICE auto as_rows_columns(Layout_ layout) {
  const auto l = logical_divide(layout, Shape<_2>{});  // ((2, 2), M, N)
  return make_layout(make_layout(get<0, 1>(l), get<1>(l)), make_layout(get<0, 0>(l), get<2>(l)));
}
template <class Fragment>
FALCHION_DEVICE auto rows_columns(Fragment&& fragment) {
  return make_tensor(fragment.data(), as_rows_columns(fragment.layout()));
}

/// Rounds f32 to f16 or bf16, to nearest even, two numbers at a time.
template <class From, class To>
FALCHION_DEVICE void convert(const From& from, To&& to) {
  using Element = typename std::remove_cvref_t<To>::value_type;
  const auto pairs = recast<cutlass::Array<Element, 2>>(to);
  const auto floats = recast<cutlass::Array<float, 2>>(from);
  cutlass::NumericArrayConverter<Element, float, 2> converter;
  CUTE_UNROLL
  for (int i = 0; i < size(pairs); ++i) pairs(i) = converter(floats(i));
}

/// Exchanges x[i] of lane q of a quad with x[q] of lane i, for all i and q. It takes two steps: with the lane whose
/// number differs in bit 0, then with the one that differs in bit 1.
FALCHION_DEVICE void transpose_quad(std::uint32_t (&x)[4]) {
  const unsigned lane = threadIdx.x % 4;
  // Lanes whose number lacks the bit keep a and give b; the others keep b and give a.
  const auto exchange = [&](std::uint32_t& a, std::uint32_t& b, unsigned bit) {
    const bool upper = (lane & bit) != 0;
    const std::uint32_t other = __shfl_xor_sync(~0u, upper ? a : b, bit);
    (upper ? a : b) = other;
  };
  exchange(x[0], x[1], 1);
  exchange(x[2], x[3], 1);
  exchange(x[0], x[2], 2);
  exchange(x[1], x[3], 2);
}

}  // namespace falchion::gpu
