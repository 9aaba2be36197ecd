// src/blocks/sm90_softmax.cuh: the online softmax of blocks/sm80_softmax.cuh where a thread has two rows of one tile,
// and the time from a score to its probability is what the tensor cores wait for.
#pragma once

#include "blocks/sm80_softmax.cuh"

namespace falchion::sm90 {

using namespace cute;

/// Maxima are looked for only where they are needed. Once every row has seen a key, all that a tile must be asked is
/// whether a score outgrows its row's m by more than kSlack bits. That question is put to the exponents (s - m) c: a
/// positive float is greater than another if its bits are, so the DPX instruction that takes the maximum of three
/// integers answers it with half the instructions, and what it makes of negative numbers does not matter.
/// A row's m is raised when its own scores ask for it, never because of another row in the warp: so a row's bits do not
/// depend on what stands beside it, as in a packed batch, where the last warp of a sequence also has rows of the next.
struct Softmax : sm80::OnlineSoftmax<2> {
  int careful;  // 1: some row has seen no key yet, or `far`: the maximum is taken before the exponents

  /// The first tile's S (rows, columns) -> exponents in bits.
  template <class Scores>
  __device__ __forceinline__ void first_exponents(Scores& S, float c) {
    float top[2], shrink[2];
    if (outgrown(S, c, top)) raise(top, c, shrink);
    start_update(S, c);
    note_careful();
    CUTE_UNROLL
    for (int j = 0; j < size<1>(S); ++j) S(0, j) = fmaf(S(0, j), c, -base[0]), S(1, j) = fmaf(S(1, j), c, -base[1]);
  }
  /// Any other tile's, all of them at most kSlack. true: m was raised, O is to be multiplied by shrink.
  template <class Scores>
  __device__ __forceinline__ bool exponents(Scores& S, float c, float (&shrink)[2]) {
    bool raised = false;
    CUTE_NO_UNROLL
    for (int i = 0; i < careful; ++i) {  // once at most, as all loops of this kind: of an if ptxas makes predicates
      float top[2];
      raised = outgrown(S, c, top);
      if (raised) raise(top, c, shrink);
      start_update(S, c);
      note_careful();
    }
    int high[2] = {0, 0};
    CUTE_UNROLL
    for (int j = 0; j < size<1>(S); j += 2) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        S(r, j) = fmaf(S(r, j), c, -base[r]), S(r, j + 1) = fmaf(S(r, j + 1), c, -base[r]);
        high[r] = __vimax3_s32(high[r], __float_as_int(S(r, j)), __float_as_int(S(r, j + 1)));
      }
    }
    const int runs = __any_sync(~0u, max(high[0], high[1]) > __float_as_int(kSlack));
    CUTE_NO_UNROLL
    for (int i = 0; i < runs; ++i) raise_exponents(S, c, raised, shrink);
    return raised || runs != 0;
  }
  /// Exponent -> P, in place; l follows.
  template <class Scores>
  __device__ __forceinline__ void update(Scores& S, int r, int j) {
    S(r, j) = sm80::exp2(S(r, j));
    l[r] += S(r, j);
  }

 private:
  /// As OnlineSoftmax's, with four chains of maxima a row: one would wait for each result before the next.
  template <class Scores>
  __device__ __forceinline__ bool outgrown(const Scores& S, float c, float (&top)[2]) const {
    constexpr int kChains = 4, kColumns = decltype(size<1>(S))::value;
    static_assert(kColumns % kChains == 0);
    float chain[2][kChains];
    CUTE_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) chain[r][j % kChains] = j < kChains ? S(r, j) : fmaxf(chain[r][j % kChains], S(r, j));
    }
    bool any = false;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(fmaxf(chain[r][0], chain[r][1]), fmaxf(chain[r][2], chain[r][3]));
      any |= top[r] > m[r] + kSlack / c;
    }
    return __any_sync(~0u, any);
  }
  __device__ __forceinline__ void note_careful() {
    careful = far | __any_sync(~0u, m[0] == -FALCHION_INF || m[1] == -FALCHION_INF);
  }
  /// As OnlineSoftmax's, but row by row.
  __device__ __forceinline__ void raise(const float (&top)[2], float c, float (&shrink)[2]) {
    bool now_far = false;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float highest = sm80::over_quad(top[r], [](float x, float y) { return fmaxf(x, y); });
      const float after = highest > m[r] + kSlack / c ? highest : m[r];
      shrink[r] = after == m[r] ? 1.f : sm80::exp2((m[r] - after) * c);
      m[r] = after, l[r] *= shrink[r];
      now_far |= fabsf(after * c) > 1048576.f && after != -FALCHION_INF;
    }
    far |= __any_sync(~0u, now_far);
  }
  /// S has become exponents already, so m rises by what they exceed 0 by: to the maximum, give or take a rounding of
  /// the excess, which is as large as that of S itself.
  template <class Scores>
  __device__ __forceinline__ void raise_exponents(Scores& S, float c, bool raised, float (&shrink)[2]) {
    bool now_far = false;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      float excess = 0;
      CUTE_UNROLL
      for (int j = 0; j < size<1>(S); ++j) excess = fmaxf(excess, S(r, j));
      excess = sm80::over_quad(excess, [](float x, float y) { return fmaxf(x, y); });
      excess = excess > kSlack ? excess : 0.f;
      const float before = m[r];
      m[r] += excess / c;
      const float rise = excess > 0 ? (m[r] - before) * c : 0.f;  // of m c, as the next tiles will see it
      CUTE_UNROLL
      for (int j = 0; j < size<1>(S); ++j) S(r, j) -= rise;
      const float by = sm80::exp2(-rise);
      shrink[r] = raised ? shrink[r] * by : by;
      l[r] *= by, base[r] = m[r] == -FALCHION_INF ? 0.f : m[r] * c;
      now_far |= fabsf(base[r]) > 1048576.f;
    }
    far |= __any_sync(~0u, now_far);
    careful |= far;
  }
};

}  // namespace falchion::sm90
