// src/cpu/blocks/multiply_tile.hpp: the only loop of fused multiply-adds. It sums a tile of C, held in registers, over
// a depth.
#pragma once

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

// A register tile has kR rows of kU vectors. 16 of AVX-512's 32 registers, or 8 of AVX2's 16, are enough accumulators
// to cover the latency of two FMA units (4 cycles each), and they leave registers for the operands.
inline constexpr int kU = kVecs < 4 ? kVecs : (kLanes == 8 ? 2 : 4);
inline constexpr int kR = kLanes == 16 ? 8 : 4;
// The depth between two calls of between.step(), which is some 100 cycles. With vectors of 4 it is never called,
// because it would take more registers than there are.
inline constexpr int kBetween = kLanes == 16 ? 8 : 32;
inline constexpr bool kSteps = kLanes > 4;

/// For multiply_tile() without work in between.
struct Nothing {
  FALCHION_INLINE void step() {}
};

/// How the sum over this depth combines with C: it overwrites C; it continues C as a running sum, so that each product
/// rounds at its magnitude; or it is summed separately and then added to C.
enum class Into : std::uint8_t { nothing, running_sum, sum };

/// C (kRows, kVectors vectors) = or += sum over k of A(r, k) * B(k, vectors). A is read as a[r * a_row + k * a_step],
/// so that its transpose costs nothing; rows of B and C lie b_row and c_row apart. between.step() is called every
/// kBetween of the depth.
template <Into kInto, int kRows = kR, int kVectors = kU, class Between = Nothing>
FALCHION_INLINE void multiply_tile(const float* a, std::int64_t a_row, std::int64_t a_step, const float* b,
                                   std::int64_t b_row, std::int64_t depth, float* c, std::int64_t c_row,
                                   Between&& between = {}) {
  Floats acc[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int u = 0; u < kVectors; ++u)
      acc[r][u] = kInto == Into::running_sum ? load(c + r * c_row + u * kLanes) : splat(0.f);
  }
  for (std::int64_t k = 0; k < depth; ++k, a += a_step, b += b_row) {
    if (kSteps && k % kBetween == 0) between.step();
    Floats x[kVectors];
#pragma GCC unroll 4
    for (int u = 0; u < kVectors; ++u) x[u] = load(b + u * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Floats y = splat(a[r * a_row]);
#pragma GCC unroll 4
      for (int u = 0; u < kVectors; ++u) acc[r][u] = hn::MulAdd(y, x[u], acc[r][u]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int u = 0; u < kVectors; ++u) {
      float* at = c + r * c_row + u * kLanes;
      store(kInto == Into::sum ? hn::Add(load(at), acc[r][u]) : acc[r][u], at);
    }
  }
}

}  // namespace falchion::cpu::FALCHION_LEVEL
