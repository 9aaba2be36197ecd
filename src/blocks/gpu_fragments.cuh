// src/blocks/gpu_fragments.cuh: views the accumulators of a thread as a matrix, and rounds them to 16-bit numbers. It
// serves both mma.sync and wgmma, which lay out the accumulators of a warp in the same way.
#pragma once

#include <cutlass/numeric_conversion.h>

#include <cute/tensor.hpp>

namespace falchion::gpu {

using namespace cute;

/// Turns the layout of an accumulator C, which is ((2 columns, 2 rows), M, N), into (rows, columns) of this thread:
/// ((2, M), (2, N)).
template <class Layout_>
__device__ __forceinline__ auto as_rows_columns(Layout_ layout) {
  const auto l = logical_divide(layout, Shape<_2>{});  // ((2, 2), M, N)
  return make_layout(make_layout(get<0, 1>(l), get<1>(l)), make_layout(get<0, 0>(l), get<2>(l)));
}
template <class Fragment>
__device__ __forceinline__ auto rows_columns(Fragment&& fragment) {
  return make_tensor(fragment.data(), as_rows_columns(fragment.layout()));
}

/// Rounds f32 to f16 or bf16, to nearest even, two numbers at a time.
template <class From, class To>
__device__ __forceinline__ void convert(const From& from, To&& to) {
  using Element = typename std::remove_cvref_t<To>::value_type;
  const auto pairs = recast<cutlass::Array<Element, 2>>(to);
  const auto floats = recast<cutlass::Array<float, 2>>(from);
  cutlass::NumericArrayConverter<Element, float, 2> converter;
  CUTE_UNROLL
  for (int i = 0; i < size(pairs); ++i) pairs(i) = converter(floats(i));
}

}  // namespace falchion::gpu
