// src/blocks/gpu_fragments.cuh: a thread's accumulators seen as a matrix, and rounded to 16 bits. mma.sync and wgmma
// lay the accumulators of a warp out alike.
#pragma once

#include <cutlass/numeric_conversion.h>

#include <cute/tensor.hpp>

namespace falchion::gpu {

using namespace cute;

/// Accumulator C ((2 columns, 2 rows), M, N) -> (rows, columns) of this thread: ((2, M), (2, N)).
template <class Layout_>
__device__ __forceinline__ auto as_rows_columns(Layout_ layout) {
  const auto l = logical_divide(layout, Shape<_2>{});  // ((2, 2), M, N)
  return make_layout(make_layout(get<0, 1>(l), get<1>(l)), make_layout(get<0, 0>(l), get<2>(l)));
}
template <class Fragment>
__device__ __forceinline__ auto rows_columns(Fragment&& fragment) {
  return make_tensor(fragment.data(), as_rows_columns(fragment.layout()));
}

/// f32 -> f16, bf16, two at a time, to nearest even.
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
