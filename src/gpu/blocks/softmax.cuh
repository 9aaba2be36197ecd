// src/gpu/blocks/softmax.cuh: softmax over a stream of key tiles on mma fragments (Milakov and Gimelshein 2018;
// FlashAttention-2, arXiv:2307.08691, section 3.1). The four lanes of a quad share a row, and each of them has a
// quarter of its columns. cpu/blocks/online_softmax.hpp does the same on the CPU.
#pragma once

#include <cute/tensor.hpp>

#include "base/host_device.hpp"

namespace falchion::gpu {

using namespace cute;

inline constexpr float kLog2e = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;
#define FALCHION_INF __int_as_float(0x7F800000)

/// 2^x. The asm is volatile, because otherwise ptxas moves ex2 up, before all of the products that it should overlap
/// with.
FALCHION_DEVICE float exp2(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
FALCHION_DEVICE float log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// 1 / x with an error of at most one unit in the last place. A full division takes 20 instructions and a branch.
FALCHION_DEVICE float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <class Op>
FALCHION_DEVICE float over_quad(float x, Op op) {
  x = op(x, __shfl_xor_sync(~0u, x, 1));
  return op(x, __shfl_xor_sync(~0u, x, 2));
}

/// The state that OnlineSoftmax, sm90's Softmax and its SoftmaxF32 keep of the kRows rows of a thread. O and l are
/// relative to 2^(m c), where c is one unit of S in the exponent of 2.
template <int kRows>
struct SoftmaxRows {
  static constexpr int kSize = kRows;
  float m[kRows];  // the reference, in units of S; the same in all four lanes
  float l[kRows];  // sum of exp2((s - m) c) over this lane's columns

  FALCHION_DEVICE void reset() {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      m[r] = -FALCHION_INF;
      l[r] = 0;
    }
  }
  /// Sums l over the four lanes of a row, so that all of them have the whole sum.
  FALCHION_DEVICE void finish() {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) l[r] = over_quad(l[r], [](float x, float y) { return x + y; });
  }
  /// The power of 2 that O and l are relative to. It is -inf if no key was seen.
  FALCHION_DEVICE float reference(int r, float c) const { return m[r] == -FALCHION_INF ? m[r] : m[r] * c; }
  /// The natural logarithm of the sum of exponentials, or -inf if no key was seen. nats is one unit of S in nats. It is
  /// exact enough for 16-bit operands; kernels for f32 compute theirs in double.
  FALCHION_DEVICE float lse(int r, float nats) const {
    return m[r] == -FALCHION_INF && l[r] == 0 ? -FALCHION_INF : fmaf(m[r], nats, log2(l[r]) * kLn2);
  }
};

/// The online softmax of mma.sync's kernels. m need not be the true maximum: it is raised only when a score is more
/// than kSlack bits above it, so that O is rescaled about once per row (FlashAttention-4 does the same). P may then
/// reach 2^kSlack, which costs no precision in floating point.
template <int kRows>
struct OnlineSoftmax : SoftmaxRows<kRows> {
  using SoftmaxRows<kRows>::m, SoftmaxRows<kRows>::l;
  static constexpr float kSlack = 8;
  float base[kRows];  // m c
  int far;            // 1: some |m c| is so large that s c - m c would lose digits

  FALCHION_DEVICE void reset() {
    SoftmaxRows<kRows>::reset();
    far = 0;
  }

  /// Whether a score of S (rows, columns) is more than kSlack bits above the m of its row. All lanes of the warp get
  /// the same answer. top receives the maximum of each row over this lane's columns.
  template <class Scores>
  FALCHION_DEVICE bool outgrown(const Scores& S, float c, float (&top)[kRows]) const {
    bool any = false;
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      top[r] = S(r, 0);
      CUTE_UNROLL
      for (int j = 1; j < size<1>(S); ++j) top[r] = fmaxf(top[r], S(r, j));  // ignores a NaN, which reaches l instead
      any |= top[r] > m[r] + kSlack / c;
    }
    return __any_sync(~0u, any);
  }

  /// Sets m to the maximum so far and multiplies l by shrink. O must be multiplied by shrink too.
  FALCHION_DEVICE void raise(const float (&top)[kRows], float c, float (&shrink)[kRows]) {
    bool now_far = 0;
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float after = fmaxf(m[r], over_quad(top[r], [](float x, float y) { return fmaxf(x, y); }));
      // While a row has seen no key, O and l are 0, and -inf - -inf must not turn them into NaN.
      shrink[r] = after == -FALCHION_INF ? 1.f : exp2((m[r] - after) * c);
      m[r] = after;
      l[r] *= shrink[r];
      now_far |= fabsf(after * c) > 1048576.f && after != -FALCHION_INF;
    }
    far = __any_sync(~0u, now_far);
  }

  /// Must be called once for each tile, before update. If `far` is set (by masks of -1e30 and the like), m is
  /// subtracted from S before the multiplication, which is exact where it matters.
  template <class Scores>
  FALCHION_DEVICE void start_update(Scores& S, float c) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) base[r] = m[r] == -FALCHION_INF ? 0.f : m[r] * c;
    // This is a loop, although it runs at most once: ptxas would turn an `if` into predicates, 64 instructions for
    // every tile.
    CUTE_NO_UNROLL
    for (int i = 0; i < far; ++i) {
      CUTE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        base[r] = 0;
        CUTE_UNROLL
        for (int j = 0; j < size<1>(S); ++j) S(r, j) -= m[r] == -FALCHION_INF ? 0.f : m[r];
      }
    }
  }
  /// Replaces one element of S by P = exp2((S - m) c) and adds it to l. This takes one FFMA, one ex2 and one FADD.
  template <class Scores>
  FALCHION_DEVICE void update(Scores& S, int r, int j, float c) {
    S(r, j) = exp2(fmaf(S(r, j), c, -base[r]));
    l[r] += S(r, j);
  }
};

}  // namespace falchion::gpu
