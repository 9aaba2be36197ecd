// src/gpu/blocks/mma.cuh: products of a warp on mma.sync with operands in swizzled tiles of shared memory, at the level
// of single registers. Used by kernels that keep four matrices of sums in registers: there the order of single
// instructions matters.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cutlass/numeric_conversion.h>
#include <cute/arch/mma_sm80.hpp>
#include <cute/config.hpp>

#include "base/host_device.hpp"
#include "gpu/blocks/lane_blocks.hpp"

namespace falchion::gpu {

/// Returns x, but hides from the compiler that it is the same in each round of a loop. Otherwise it would keep
/// everything derived from x, such as the addresses of all blocks, in registers, of which there are none to spare.
template <class Number>
FALCHION_DEVICE Number hidden(Number x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// A block as an operand: 16 x 16 elements, of which each lane holds 8.
using Block = std::uint32_t[4];

FALCHION_DEVICE void load_block(std::uint32_t address, Block& to) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
FALCHION_DEVICE void load_block_transposed(std::uint32_t address, Block& to) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
/// Stores a block so that load_block with the same address reads it. GPUs before Hopper have no stmatrix: each lane
/// stores its four words, whose addresses follow from the block's first byte.
FALCHION_DEVICE void store_block(std::uint32_t address, std::uint32_t words_address, const Block& from) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
#else
  const auto store = [](std::uint32_t to, std::uint32_t word) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
  };
  store(words_address, from[0]);
  store(words_address + 8 * 128, from[1]);
  store(words_address ^ 16, from[2]);
  store((words_address ^ 16) + 8 * 128, from[3]);
#endif
}
/// The sums of 16 x 8 elements: two of row lane / 4, two of the row 8 further down.
using Sums = float[4];

/// c += a b, where b is one half of a block.
template <class Element>
FALCHION_DEVICE void multiply_add(Sums& c, const Block& a, std::uint32_t b0, std::uint32_t b1) {
  using Mma = std::conditional_t<std::is_same_v<Element, cutlass::bfloat16_t>, cute::SM80_16x8x16_F32BF16BF16F32_TN,
                                 cute::SM80_16x8x16_F32F16F16F32_TN>;
  Mma::fma(c[0], c[1], c[2], c[3], a[0], a[1], a[2], a[3], b0, b1, c[0], c[1], c[2], c[3]);
}

/// c += A B for 32 rows and 16 kPairs columns, over 16 kDepth terms, in kDepth kPairs steps of four mma. load_a(k, m,
/// to) and load_b(k, i, to) load a block, kAheadA and kAheadB steps before its use: ldmatrix takes 30 cycles, and more
/// under contention. beside(step) does other work between the products.
template <class Element, int kDepth, int kPairs, int kAheadA, int kAheadB, class LoadA, class LoadB, class Beside>
FALCHION_DEVICE void multiply(Sums (&c)[2][2 * kPairs], LoadA load_a, LoadB load_b, Beside beside) {
  static_assert(kAheadA <= kPairs && kAheadB <= kDepth * kPairs);
  Block a[2][2], b[kAheadB + 1];
  CUTE_UNROLL
  for (int m = 0; m < 2; ++m) load_a(0, m, a[0][m]);
  CUTE_UNROLL
  for (int n = 0; n < kAheadB; ++n) load_b(n / kPairs, n % kPairs, b[n]);
  CUTE_UNROLL
  for (int k = 0; k < kDepth; ++k) {
    CUTE_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const int step = k * kPairs + i, next = step + kAheadB;
      if (next < kDepth * kPairs) load_b(next / kPairs, next % kPairs, b[next % (kAheadB + 1)]);
      if (i == kPairs - kAheadA && k + 1 < kDepth) {
        CUTE_UNROLL
        for (int m = 0; m < 2; ++m) load_a(k + 1, m, a[(k + 1) % 2][m]);
      }
      CUTE_UNROLL
      for (int n = 0; n < 2; ++n) {
        CUTE_UNROLL
        for (int m = 0; m < 2; ++m) {
          multiply_add<Element>(c[m][2 * i + n], a[k % 2][m], b[step % (kAheadB + 1)][2 * n],
                                b[step % (kAheadB + 1)][2 * n + 1]);
        }
      }
      beside(step);
    }
  }
}

/// Rounds two numbers and puts them into one word.
template <class Element>
FALCHION_DEVICE std::uint32_t round_pair(float x, float y) {
  const auto pair = cutlass::NumericArrayConverter<Element, float, 2>::convert(cutlass::Array<float, 2>{x, y});
  return reinterpret_cast<const std::uint32_t&>(pair);
}
/// The number in the lower or the upper half of a word.
template <class Element>
FALCHION_DEVICE float number_of(std::uint32_t word, int half) {
  if constexpr (std::is_same_v<Element, cutlass::bfloat16_t>) {
    return __uint_as_float(half == 0 ? word << 16 : word & 0xFFFF0000u);
  } else {
    return static_cast<float>(Element::bitcast(static_cast<std::uint16_t>(half == 0 ? word : word >> 16)));
  }
}

}  // namespace falchion::gpu
