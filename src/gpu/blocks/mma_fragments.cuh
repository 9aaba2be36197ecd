// src/gpu/blocks/mma_fragments.cuh: turns accumulators of mma m16n8k16 into an operand of the next product, and has the
// loops of the two products of attention.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/fragments.cuh"

namespace falchion::gpu {

/// Two neighbouring accumulators C (16 x 8 each) hold exactly the elements of operand A (16 x 16) of the next product,
/// in the same lanes. So a layout ((2, 2), M, N) becomes ((2, 2, 2), M, N / 2), and P never leaves the registers.
template <class Layout_>
FALCHION_DEVICE auto as_operand_a(Layout_ layout) {
  const auto l = logical_divide(layout, Shape<Underscore, Underscore, _2>{});  // (4, M, (2, N / 2))
  return make_layout(make_layout(get<0>(l), get<2, 0>(l)), get<1>(l), get<2, 1>(l));
}

/// Computes C += A B over all k steps. load_a(k) and load_b(k) load step k from shared memory into registers. They are
/// called one step ahead of its use, because ldmatrix takes some 30 cycles.
template <class Mma, class C, class A, class B, class LoadA, class LoadB>
FALCHION_DEVICE void multiply(Mma mma, C& c, const A& a, const B& b, LoadA load_a, LoadB load_b) {
  constexpr int kSteps = decltype(size<2>(a))::value;
  load_a(_0{});
  load_b(_0{});
  for_each(make_int_sequence<kSteps>{}, [&](auto k) {
    if constexpr (decltype(k)::value + 1 < kSteps) {
      load_a(k + _1{});
      load_b(k + _1{});
    }
    gemm(mma, a(_, _, k), b(_, _, k), c);
  });
}

/// Computes C += A B while A is being made. prepare(k, i, of) does share i, of `of` shares, of the work for step k of
/// A. It is called between the products of step k - 1, so that the two overlap. load_b(k, i) loads 16 columns of B.
template <class Mma, class C, class A, class B, class Prepare, class LoadB>
FALCHION_DEVICE void multiply_prepared(Mma mma, C& c, const A& a, const B& b, Prepare prepare, LoadB load_b) {
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

}  // namespace falchion::gpu
