// src/gpu/blocks/sm90_wgmma.cuh: asynchronous matrix products of a warpgroup (wgmma), and views of the registers that
// they read and write. docs/design/sm90_forward.md shows their order.
#pragma once

#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>

#include "base/host_device.hpp"

namespace falchion::sm90 {

using namespace cute;

/// Starts C = A B (kClear) or C += A B as one batch, over all steps of k or over kSteps of them from kFrom on. Until
/// the batch has been waited for, no code may touch C, nor A if that lies in registers.
template <bool kClear, int kFrom = 0, int kSteps = -1, class Mma, class A, class B, class C>
FALCHION_DEVICE void start_multiply(Mma mma, const A& a, const B& b, C& c) {
  constexpr bool kFromRegisters = !is_base_of<GMMA::DescriptorIterator, typename Mma::FrgTypeA>::value;
  if constexpr (kFromRegisters) warpgroup_fence_operand(const_cast<A&>(a));
  warpgroup_fence_operand(c);
  warpgroup_arrive();
  mma.accumulate_ = kClear ? GMMA::ScaleOut::Zero : GMMA::ScaleOut::One;
  CUTE_UNROLL
  for (int k = kFrom; k < (kSteps < 0 ? size<2>(a) : kFrom + kSteps); ++k) {
    gemm(mma, a(_, _, k), b(_, _, k), c);
    mma.accumulate_ = GMMA::ScaleOut::One;
  }
  warpgroup_commit_batch();
  warpgroup_fence_operand(c);
  if constexpr (kFromRegisters) warpgroup_fence_operand(const_cast<A&>(a));
}
/// Marks the contents of the fragment as dead. A product that overwrites it would otherwise keep it alive up to its
/// start, because warpgroup_fence_operand both reads and writes.
template <class C>
FALCHION_DEVICE void forget(C& c) {
  CUTE_UNROLL
  for (int i = 0; i < size(c); ++i) asm volatile("" : "=f"(c(i))::"memory");
}
/// Waits until at most the last kBatches batches are still running. C: the result that is then available.
template <int kBatches, class C>
FALCHION_DEVICE void wait_multiply(C& c) {
  warpgroup_wait<kBatches>();
  warpgroup_fence_operand(c);
}

/// An accumulator ((2, 2, N / 8), 1, 1) of 64 x N, viewed as one of mma m16n8: (4, 1, N / 8).
template <class Fragment>
FALCHION_DEVICE auto as_mma_accumulator(Fragment& fragment) {
  constexpr int kAtoms = decltype(size(fragment))::value / 4;
  return make_tensor(fragment.data(), Layout<Shape<_4, _1, Int<kAtoms>>, Stride<_1, _0, _4>>{});
}
/// The same registers, viewed as operand A of steps of 16 in k: ((2, 2, 2), 1, N / 16).
template <class Fragment>
FALCHION_DEVICE auto as_wgmma_operand_a(Fragment& fragment) {
  constexpr int kSteps = decltype(size(fragment))::value / 8;
  return make_tensor(fragment.data(),
                     Layout<Shape<Shape<_2, _2, _2>, _1, Int<kSteps>>, Stride<Stride<_1, _2, _4>, _0, _8>>{});
}

}  // namespace falchion::sm90
