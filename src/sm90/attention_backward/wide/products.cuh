// src/sm90/attention_backward/wide/products.cuh: the products of Hopper's backward kernel for head dims above 128, and
// the registers that they read and write.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_wgmma.cuh"
#include "sm90/attention_backward/wide/config.hpp"

namespace falchion::sm90 {

/// The fragments of one warpgroup. line_of and column_of map element i of scores to its line and column.
template <class Config>
struct WideFragments {
  using Element = typename Config::Element;
  using Scores = decltype(partition_fragment_C(typename Config::MmaScores{}, Shape<_64, _64>{}));  // f32
  using Gradient =
      decltype(partition_fragment_C(typename Config::MmaGradient{}, Shape<_64, Int<Config::kD>>{}));  // f32
  using Factor = decltype(make_tensor<Element>(Layout<Int<32>>{}));                                   // (64, 64)
  using Held = decltype(make_tensor<Element>(Layout<Int<8 * cute::max(Config::kStepsHeld, 1)>>{}));
};

/// Returns the same pointer, but hides that from the compiler. Otherwise it would compute the descriptors of a constant
/// tile before the loop and keep one for each step of the product in registers.
template <class Element>
FALCHION_DEVICE const Element* as_new(const Element* tile) {
  asm volatile("" : "+l"(tile));
  return tile;
}

/// S = A B^T of two tiles in shared memory; the last columns of A are held in registers.
template <class Config, class Element, class Scores, class Held>
FALCHION_DEVICE void start_scores(const Element* a, Held& held, const Element* b, Scores& to) {
  using Mma = typename Config::MmaScores;
  const auto sA = make_tensor(make_smem_ptr(as_new(a)), typename Config::LayoutHere{});
  const auto sB = make_tensor(make_smem_ptr(b), typename Config::LayoutWhole{});
  const auto slice = Mma{}.get_slice(threadIdx.x % 128);
  const auto rA = slice.partition_fragment_A(sA);
  const auto rB = slice.partition_fragment_B(sB);
  Mma mma;
  typename Config::MmaHeld mma_held;
  const auto rHeld = as_wgmma_operand_a(held);
  forget(to);
  warpgroup_fence_operand(held);  // no code may touch the registers once the first product has begun
  warpgroup_fence_operand(to);
  warpgroup_arrive();
  mma.accumulate_ = GMMA::ScaleOut::Zero;
  CUTE_UNROLL
  for (int k = 0; k < Config::kStepsHere; ++k) {
    gemm(mma, rA(_, _, k), rB(_, _, k), to);
    mma.accumulate_ = GMMA::ScaleOut::One;
  }
  CUTE_UNROLL
  for (int k = 0; k < Config::kStepsHeld; ++k) gemm(mma_held, rHeld(_, _, k), rB(_, _, k + Config::kStepsHere), to);
  warpgroup_commit_batch();
  warpgroup_fence_operand(to);
}
/// The same for two tiles that lie in shared memory as a whole.
template <class Config, class Element, class Scores>
FALCHION_DEVICE void start_scores(const Element* a, const Element* b, Scores& to) {
  using Mma = typename Config::MmaScores;
  const auto slice = Mma{}.get_slice(threadIdx.x % 128);
  const auto rA = slice.partition_fragment_A(make_tensor(make_smem_ptr(as_new(a)), typename Config::LayoutWhole{}));
  const auto rB = slice.partition_fragment_B(make_tensor(make_smem_ptr(b), typename Config::LayoutWhole{}));
  forget(to);
  start_multiply<true>(Mma{}, rA, rB, to);
}
/// gradient += factor B.
template <class Config, class Element, class Factor, class Gradient>
FALCHION_DEVICE void start_gradient(Factor& factor, const Element* b, Gradient& gradient) {
  using Mma = typename Config::MmaGradient;
  const auto sB = make_tensor(make_smem_ptr(b), typename Config::LayoutTransposed{});
  const auto rB = Mma{}.get_slice(threadIdx.x % 128).partition_fragment_B(sB);
  start_multiply<false>(Mma{}, as_wgmma_operand_a(factor), rB, gradient);
}

/// Reads the held boxes into registers: 16 lines of a warp, 16 columns at a time.
template <class Config, class Element, class Held>
FALCHION_DEVICE void read_held(const Element* boxes, Held& held) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const int line = warp * 16 + lane % 16;
  const auto words = recast<std::uint32_t>(held);
  CUTE_UNROLL
  for (int k = 0; k < Config::kStepsHeld; ++k) {
    const int chunk = (k % 4 * 2 + lane / 16) ^ (line % 8);
    const Element* at = boxes + k / 4 * Config::kSizeBox + line * Config::kBox + chunk * 8;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words(4 * k)), "=r"(words(4 * k + 1)), "=r"(words(4 * k + 2)), "=r"(words(4 * k + 3))
                 : "r"(cute::cast_smem_ptr_to_uint(at))
                 : "memory");
  }
}

/// The line and column of a thread's elements of scores (64, 64): element i lies in line_of(i / 2 % 2) and in
/// column_of(i / 4) + i % 2.
FALCHION_DEVICE int line_of(int r) {
  return static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * r;
}
FALCHION_DEVICE int column_of(int n) { return n * 8 + static_cast<int>(threadIdx.x) % 4 * 2; }

/// Sets masked scores to 0. seen_by(line): the interval of columns that a line sees, where column 0 has number column0.
/// counts(column): whether any line may see the column.
template <class Scores, class SeenBy, class Counts>
FALCHION_DEVICE void keep_seen(Scores& scores, std::int64_t column0, SeenBy seen_by, Counts counts) {
  const auto clamped = [&](std::int64_t bound) {
    return static_cast<int>(min(max(bound - column0, std::int64_t{-1}), std::int64_t{64}));
  };
  const Range seen[2] = {seen_by(line_of(0)), seen_by(line_of(1))};
  const int first[2] = {clamped(seen[0].begin), clamped(seen[1].begin)};
  const int past[2] = {clamped(seen[0].end), clamped(seen[1].end)};
  CUTE_UNROLL
  for (int i = 0; i < 32; ++i) {
    const int column = column_of(i / 4) + i % 2, r = i / 2 % 2;
    if (column < first[r] || column >= past[r] || !counts(column)) scores(i) = 0;
  }
}
template <class Element, class Factor, class Scores>
FALCHION_DEVICE void round_factor(Factor& to, const Scores& scores) {
  CUTE_UNROLL
  for (int i = 0; i < 32; i += 2)
    recast<cutlass::Array<Element, 2>>(to)(i / 2) =
        cutlass::NumericArrayConverter<Element, float, 2>::convert({scores(i), scores(i + 1)});
}

}  // namespace falchion::sm90
