// src/sm90/attention_backward_wide_products.cuh: the products of Hopper's backward kernel for head dims above 128, and
// the registers that they read and write.
#pragma once

#include "blocks/sm90_wgmma.cuh"
#include "sm90/attention_backward_wide_config.hpp"

namespace falchion::sm90 {

/// One warpgroup's share of each matrix. Line and column of element i of scores: see SeenPairs.
template <class Config>
struct WideFragments {
  using Element = typename Config::Element;
  using Scores = decltype(partition_fragment_C(typename Config::MmaScores{}, Shape<_64, _64>{}));  // f32
  using Gradient =
      decltype(partition_fragment_C(typename Config::MmaGradient{}, Shape<_64, Int<Config::kD>>{}));  // f32
  using Factor = decltype(make_tensor<Element>(Layout<Int<32>>{}));                                   // (64, 64)
  using Held = decltype(make_tensor<Element>(Layout<Int<8 * cute::max(Config::kStepsHeld, 1)>>{}));
};

/// The steps of operand B from step kFrom on.
template <int kFrom, class B>
__device__ __forceinline__ auto steps_from(const B& b) {
  return [&b](auto, auto, int k) { return b(_, _, k + kFrom); };
}

/// S = A B^T of two tiles in shared memory, of which A lacks the columns that are held in registers.
template <class Config, class Element, class Scores, class Held>
__device__ __forceinline__ void start_scores(const Element* a, Held& held, const Element* b, Scores& to) {
  using Mma = typename Config::MmaScores;
  const auto sA = make_tensor(make_smem_ptr(a), typename Config::LayoutHere{});
  const auto sB = make_tensor(make_smem_ptr(b), typename Config::LayoutWhole{});
  const auto slice = Mma{}.get_slice(threadIdx.x % 128);
  const auto rA = slice.partition_fragment_A(sA);
  const auto rB = slice.partition_fragment_B(sB);
  forget(to);
  start_multiply<true>(Mma{}, rA, rB, to);
  if constexpr (Config::kStepsHeld > 0)
    start_multiply<false>(typename Config::MmaHeld{}, as_wgmma_operand_a(held), steps_from<Config::kStepsHere>(rB), to);
}
/// The same of two whole tiles in shared memory.
template <class Config, class Element, class Scores>
__device__ __forceinline__ void start_scores(const Element* a, const Element* b, Scores& to) {
  using Mma = typename Config::MmaScores;
  const auto slice = Mma{}.get_slice(threadIdx.x % 128);
  const auto rA = slice.partition_fragment_A(make_tensor(make_smem_ptr(a), typename Config::LayoutWhole{}));
  const auto rB = slice.partition_fragment_B(make_tensor(make_smem_ptr(b), typename Config::LayoutWhole{}));
  forget(to);
  start_multiply<true>(Mma{}, rA, rB, to);
}
/// gradient += factor B.
template <class Config, class Element, class Factor, class Gradient>
__device__ __forceinline__ void start_gradient(Factor& factor, const Element* b, Gradient& gradient) {
  using Mma = typename Config::MmaGradient;
  const auto sB = make_tensor(make_smem_ptr(b), typename Config::LayoutTransposed{});
  const auto rB = Mma{}.get_slice(threadIdx.x % 128).partition_fragment_B(sB);
  start_multiply<false>(Mma{}, as_wgmma_operand_a(factor), rB, gradient);
}

/// Reads the boxes that are held: 16 lines of a warp, 16 columns at a time.
template <class Config, class Element, class Held>
__device__ __forceinline__ void read_held(const Element* boxes, Held& held) {
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

/// Which of a thread's 32 pairs of a line and a column see each other. Element i lies in line lane / 4 + 8 (i / 2 % 2)
/// of its warp's 16 and in column 8 (i / 4) + 2 (lane % 4) + i % 2.
class SeenPairs {
 public:
  static __device__ __forceinline__ int line(int r) {
    return static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * r;
  }
  static __device__ __forceinline__ int column(int n) { return n * 8 + static_cast<int>(threadIdx.x) % 4 * 2; }

  /// of_line(r): the columns that line(r) sees, an interval. counts(c): does column c count at all?
  template <class OfLine, class Counts>
  __device__ __forceinline__ void find(OfLine of_line, std::int64_t column0, Counts counts) {
    bits_ = 0;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const Range seen = of_line(r);
      const auto clamped = [&](std::int64_t bound) {
        return static_cast<int>(min(max(bound - column0, std::int64_t{-1}), std::int64_t{64}));
      };
      const int first = clamped(seen.begin), past = clamped(seen.end);
      CUTE_UNROLL
      for (int n = 0; n < 8; ++n) {
        CUTE_UNROLL
        for (int e = 0; e < 2; ++e) {
          const int c = column(n) + e;
          if (first <= c && c < past && counts(c)) bits_ |= 1u << (n * 4 + 2 * r + e);
        }
      }
    }
  }
  __device__ __forceinline__ bool operator()(int i) const { return (bits_ >> i & 1) != 0; }

 private:
  std::uint32_t bits_;
};

/// Rounds value(i) for each of the 32 elements.
template <class Element, class Factor, class F>
__device__ __forceinline__ void round_factor(Factor& to, F value) {
  CUTE_UNROLL
  for (int i = 0; i < 32; i += 2)
    recast<cutlass::Array<Element, 2>>(to)(i / 2) =
        cutlass::NumericArrayConverter<Element, float, 2>::convert({value(i), value(i + 1)});
}
/// The same, but 0 where a pair does not see each other, if there may be such pairs.
template <class Element, class Factor, class F>
__device__ __forceinline__ void round_factor(Factor& to, bool masked, const SeenPairs& seen, F value) {
  if (masked) {
    round_factor<Element>(to, [&](int i) { return seen(i) ? value(i) : 0.f; });
  } else {
    round_factor<Element>(to, value);
  }
}

}  // namespace falchion::sm90
