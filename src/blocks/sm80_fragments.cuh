// src/blocks/sm80_fragments.cuh: register fragments of mma m16n8k16 seen as matrices, and the two products of attention
// on them.
#pragma once

#include <cutlass/numeric_conversion.h>

#include <cute/tensor.hpp>

namespace falchion::sm80 {

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

/// Two neighbouring accumulators C (16 x 8 each) hold just what operand A (16 x 16) of the next product wants, in the
/// same lanes: ((2, 2), M, N) -> ((2, 2, 2), M, N / 2). P never leaves the registers.
template <class Layout_>
__device__ __forceinline__ auto as_operand_a(Layout_ layout) {
  const auto l = logical_divide(layout, Shape<Underscore, Underscore, _2>{});  // (4, M, (2, N / 2))
  return make_layout(make_layout(get<0>(l), get<2, 0>(l)), get<1>(l), get<2, 1>(l));
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

/// C += A B over all of their k steps. load_a, load_b (k) bring step k from shared memory into registers, one step
/// ahead of its use: ldmatrix takes some 30 cycles.
template <class Mma, class C, class A, class B, class LoadA, class LoadB>
__device__ __forceinline__ void multiply(Mma mma, C& c, const A& a, const B& b, LoadA load_a, LoadB load_b) {
  constexpr int kSteps = decltype(size<2>(a))::value;
  load_a(_0{}), load_b(_0{});
  for_each(make_int_sequence<kSteps>{}, [&](auto k) {
    if constexpr (decltype(k)::value + 1 < kSteps) load_a(k + _1{}), load_b(k + _1{});
    gemm(mma, a(_, _, k), b(_, _, k), c);
  });
}

/// C += A B where A is made on the way: prepare(k, i, of) does share i of the work on step k of A, and is called
/// between the products of step k - 1, so that it runs under them. load_b(k, i) brings 16 columns of B.
template <class Mma, class C, class A, class B, class Prepare, class LoadB>
__device__ __forceinline__ void multiply_prepared(Mma mma, C& c, const A& a, const B& b, Prepare prepare,
                                                  LoadB load_b) {
  constexpr int kSteps = decltype(size<2>(a))::value, kPairs = decltype(size<1>(b))::value / 2;
  prepare(_0{}, _0{}, _1{});
  load_b(_0{}, _0{});
  for_each(make_int_sequence<kSteps>{}, [&](auto k) {
    for_each(make_int_sequence<kPairs>{}, [&](auto i) {
      constexpr int kNext = decltype(k)::value * kPairs + decltype(i)::value + 1;
      if constexpr (kNext < kSteps * kPairs) load_b(Int<kNext / kPairs>{}, Int<kNext % kPairs>{});
      CUTE_UNROLL
      for (int n = 2 * i; n < 2 * i + 2; ++n) {
        CUTE_UNROLL
        for (int m = 0; m < size<1>(c); ++m) {
          auto atom = c(_, m, n);
          mma.call(a(_, m, k), b(_, n, k), atom);
        }
      }
      if constexpr (decltype(k)::value + 1 < kSteps) prepare(k + _1{}, i, Int<kPairs>{});
    });
  });
}

}  // namespace falchion::sm80
