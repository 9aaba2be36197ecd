// src/cpu/attention_forward/decode_products.hpp: the two products of decode: S = Q K^T row by row of K, and O += P V.
// The lanes are head dims. On level avx512_bf16 vdpbf16ps makes both in bf16, two products a lane: in S of two
// neighbouring dims, and in O of two keys, whose rows of V are interleaved; there P is rounded to bf16, as in prompts.
#pragma once

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// sums[r] holds, spread over its lanes, the dot product of the first `whole` numbers of `k`, whole vectors, and row r
/// of q. Rows of q are q_row floats apart.
template <class K, int kRows>
FALCHION_INLINE void dots(const typename K::Bits* k, const float* q, std::int64_t q_row, std::int64_t whole,
                          Floats (&sums)[kRows]) {
  Floats sum[kRows][2];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = splat(0.f);
  std::int64_t c = 0;
  for (; c + 2 * kLanes <= whole; c += 2 * kLanes) {
    const Floats k0 = K::load(k + c), k1 = K::load(k + c + kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      sum[r][0] = hn::MulAdd(load(q + r * q_row + c), k0, sum[r][0]);
      sum[r][1] = hn::MulAdd(load(q + r * q_row + c + kLanes), k1, sum[r][1]);
    }
  }
  for (; c < whole; c += kLanes) {
    const Floats k0 = K::load(k + c);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[r][0] = hn::MulAdd(load(q + r * q_row + c), k0, sum[r][0]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Add(sum[r][0], sum[r][1]);
}

/// Turns the dot products of kLanes keys, four rows side by side, into rows of S, which are s_row floats apart.
template <int kRows>
FALCHION_INLINE void store_dots(const float* dots, float* s, std::int64_t s_row) {
#if HWY_TARGET == HWY_SCALAR
  for (int r = 0; r < kRows; ++r) s[r * s_row] = dots[r];
#else
  Floats row[4];
  hn::LoadInterleaved4(kFloats, dots, row[0], row[1], row[2], row[3]);
  #pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) store(row[r], s + r * s_row);
#endif
}

/// Adds P V to kWide vectors of O. Rows of P are p_row floats apart, and those of O o_row. v(key) is row `key` of V
/// there.
template <class V, int kRows, int kWide, class Row>
FALCHION_INLINE void values_of_rows(const float* p, std::int64_t p_row, int count, const Row& v, float* o,
                                    std::int64_t o_row) {
  Floats sum[kRows][kWide];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int w = 0; w < kWide; ++w) sum[r][w] = splat(0.F);
  }
  for (int key = 0; key < count; ++key) {
    const typename V::Bits* row = v(key);
#pragma GCC unroll 4
    for (int w = 0; w < kWide; ++w) {
      const Floats x = V::load(row + w * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r][w] = hn::MulAdd(splat(p[r * p_row + key]), x, sum[r][w]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int w = 0; w < kWide; ++w) {
      float* to = o + r * o_row + w * kLanes;
      store(hn::Add(load(to), sum[r][w]), to);
    }
  }
}

inline constexpr std::int64_t kPairColumns = 64;  // pairs: of O at a time: with four rows 16 of 32 registers are sums

#if defined(FALCHION_LEVEL_AVX512_BF16)
inline constexpr bool kHasPairs = true;

/// dots() of all d numbers of bf16. Rows of q are q_row numbers apart, and 0 past d.
template <int kRows>
FALCHION_INLINE void dots_of_pairs(const std::uint16_t* k, const std::uint16_t* q, std::int64_t q_row, std::int64_t d,
                                   Floats (&sums)[kRows]) {
  __m512 sum[kRows];
  #pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sum[r] = _mm512_setzero_ps();
  const auto add = [&](__m512i x, std::int64_t c) {
  #pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      sum[r] = _mm512_dpbf16_ps(sum[r], (__m512bh)_mm512_loadu_si512(q + r * q_row + c), (__m512bh)x);
  };
  std::int64_t c = 0;
  for (; c + 32 <= d; c += 32) add(_mm512_loadu_si512(k + c), c);
  if (c < d) add(_mm512_maskz_loadu_epi16((1U << (d - c)) - 1, k + c), c);
  #pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sums[r] = Floats{sum[r]};
}

/// Adds P V to kPairColumns columns of O. Rows of P are p_row numbers apart, and those of O o_row. v(key) is row `key`
/// of V there. An odd `count` has one more key, whose P is 0, and which has no row of V.
template <int kRows, class Row>
FALCHION_INLINE void values_of_pairs(const std::uint16_t* p, std::int64_t p_row, int count, const Row& v, float* o,
                                     std::int64_t o_row) {
  __m512 sum[kRows][4];
  #pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
  #pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) sum[r][w] = _mm512_setzero_ps();
  }
  for (int key = 0; key < count; key += 2) {
    const bool both = key + 1 < count;
    const std::uint16_t *v0 = v(key), *v1 = v(both ? key + 1 : key);
    const __mmask32 second = both ? ~0U : 0U;
  #pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i x0 = _mm512_loadu_si512(v0 + half * 32), x1 = _mm512_maskz_loadu_epi16(second, v1 + half * 32);
      const auto low = (__m512bh)_mm512_unpacklo_epi16(x0, x1), high = (__m512bh)_mm512_unpackhi_epi16(x0, x1);
  #pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        std::int32_t word;
        std::memcpy(&word, p + r * p_row + key, sizeof word);
        const auto pair = (__m512bh)_mm512_set1_epi32(word);
        sum[r][2 * half] = _mm512_dpbf16_ps(sum[r][2 * half], pair, low);
        sum[r][2 * half + 1] = _mm512_dpbf16_ps(sum[r][2 * half + 1], pair, high);
      }
    }
  }
  // Of each eight columns `low` has the first four and `high` the others.
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  #pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
  #pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) {
      float* to = o + r * o_row + w * 16;
      const __m512 x = _mm512_permutex2var_ps(sum[r][w / 2 * 2], w % 2 == 0 ? first : last, sum[r][w / 2 * 2 + 1]);
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), x));
    }
  }
}
#else
inline constexpr bool kHasPairs = false;
#endif

}  // namespace falchion::cpu::FALCHION_LEVEL
