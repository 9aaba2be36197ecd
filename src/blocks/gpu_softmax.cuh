// src/blocks/gpu_softmax.cuh: softmax over a stream of key tiles on mma fragments (Milakov and Gimelshein 2018;
// FlashAttention-2, arXiv:2307.08691, section 3.1). The four lanes of a quad share a row, each has a quarter of its
// columns. The CPU's twin: blocks/online_softmax.hpp.
#pragma once

#include <cute/tensor.hpp>

namespace falchion::gpu {

using namespace cute;

inline constexpr float kLog2e = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;
#define FALCHION_INF __int_as_float(0x7F800000)

__device__ __forceinline__ float exp2(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// 1 / x, off by one in the last place at most; a division in full is 20 instructions with a branch among them.
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <class Op>
__device__ __forceinline__ float over_quad(float x, Op op) {
  x = op(x, __shfl_xor_sync(~0u, x, 1));
  return op(x, __shfl_xor_sync(~0u, x, 2));
}

/// The state of a thread's kRows rows. O and l are relative to 2^(m c); m need not be the true maximum: it is raised
/// only when a score outgrows it by kSlack bits, so O is rescaled about once a row (FlashAttention-4 does the same).
/// P may then reach 2^kSlack, which costs a floating-point number nothing.
template <int kRows>
struct OnlineSoftmax {
  static constexpr int kSize = kRows;
  static constexpr float kSlack = 8;
  float m[kRows];     // reference, in units of S; the same in all four lanes
  float l[kRows];     // sum of exp2((s - m) c) over this lane's columns
  float base[kRows];  // m c
  int far;            // 1: some |m c| is so large that s c - m c would lose digits

  __device__ __forceinline__ void reset() {
    far = 0;
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) m[r] = -FALCHION_INF, l[r] = 0;
  }

  /// Has a score of S (rows, columns) outgrown its row's m? The answer is the warp's. top: this lane's maxima.
  template <class Scores>
  __device__ __forceinline__ bool outgrown(const Scores& S, float c, float (&top)[kRows]) const {
    bool any = false;
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      top[r] = S(r, 0);
      CUTE_UNROLL
      for (int j = 1; j < size<1>(S); ++j) top[r] = fmaxf(top[r], S(r, j));  // drops NaN, which reaches l instead
      any |= top[r] > m[r] + kSlack / c;
    }
    return __any_sync(~0u, any);
  }

  /// m = the maximum so far. l is multiplied by shrink, and so must O be.
  __device__ __forceinline__ void raise(const float (&top)[kRows], float c, float (&shrink)[kRows]) {
    bool now_far = 0;
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float after = fmaxf(m[r], over_quad(top[r], [](float x, float y) { return fmaxf(x, y); }));
      // While nothing has been seen O and l are 0, and -inf - -inf must not make a NaN of them.
      shrink[r] = after == -FALCHION_INF ? 1.f : exp2((m[r] - after) * c);
      m[r] = after, l[r] *= shrink[r];
      now_far |= fabsf(after * c) > 1048576.f && after != -FALCHION_INF;
    }
    far = __any_sync(~0u, now_far);
  }

  /// To be called once before update. far: masks of -1e30 and the like; s - m is taken first, which is exact where it
  /// matters.
  template <class Scores>
  __device__ __forceinline__ void start_update(Scores& S, float c) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) base[r] = m[r] == -FALCHION_INF ? 0.f : m[r] * c;
    // A loop, though it runs once at most: of an if ptxas would make predicates, 64 instructions for every tile.
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
  /// S -> P = exp2((S - m) c) of one element, in place; l follows. One FFMA, one ex2, one FADD.
  template <class Scores>
  __device__ __forceinline__ void update(Scores& S, int r, int j, float c) {
    S(r, j) = exp2(fmaf(S(r, j), c, -base[r]));
    l[r] += S(r, j);
  }

  /// The row's whole sum, in all four lanes.
  __device__ __forceinline__ void finish() {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) l[r] = over_quad(l[r], [](float x, float y) { return x + y; });
  }
  /// What O and l are relative to: 2^this; -inf where no key was seen.
  __device__ __forceinline__ float reference(int r, float c) const { return m[r] == -FALCHION_INF ? m[r] : m[r] * c; }
  /// Natural logarithm of the sum of exponentials; -inf where no key was seen. nats: one unit of S in them.
  __device__ __forceinline__ float lse(int r, float nats) const {
    return m[r] == -FALCHION_INF && l[r] == 0 ? -FALCHION_INF : fmaf(m[r], nats, log2(l[r]) * kLn2);
  }
};

}  // namespace falchion::gpu
