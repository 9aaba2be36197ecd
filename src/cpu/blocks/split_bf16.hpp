// src/cpu/blocks/split_bf16.hpp: numbers as sums of bf16 parts, so that AMX, which multiplies only bf16, can be used
// for all types. A bf16 number is one part. An f16 number is exactly two (8 + 8 bits hold its 11). An f32 number is
// three (24 bits), up to the last rounding. The products of two small parts are left out. A part has 8 bits, so the
// rest of a number after its first part is at most 2^-8 of it (of 1 + 2^-8, for example), and after its second part
// 2^-17. So at most 2^-16 of a product is left out for f16, and 2^-24 for f32.
#pragma once

#include "cpu/blocks/level.hpp"

#if FALCHION_AVX512

namespace falchion::cpu::FALCHION_LEVEL {

template <class T>
inline constexpr int kParts = 3;
template <>
inline constexpr int kParts<f16> = 2;
template <>
inline constexpr int kParts<bf16> = 1;

/// The products of parts (a, b) that are computed, the smallest first.
struct Product {
  int a, b;
};
template <class T>
inline constexpr int kProducts = 6;
template <>
inline constexpr int kProducts<f16> = 3;
template <>
inline constexpr int kProducts<bf16> = 1;
template <class T>
inline constexpr Product kProduct[6] = {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}};
template <>
inline constexpr Product kProduct<f16>[3] = {{1, 0}, {0, 1}, {0, 0}};
template <>
inline constexpr Product kProduct<bf16>[1] = {{0, 0}};

FALCHION_INLINE __m256i to_bf16(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }
FALCHION_INLINE __m512 from_bf16(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
FALCHION_INLINE __mmask16 first_lanes(std::int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xFFFFu : n <= 0 ? 0u : (1u << n) - 1u);
}

template <int kCount>
FALCHION_INLINE void split(__m512 x, __m256i (&part)[kCount]) {
  #pragma GCC unroll 3
  for (int i = 0; i < kCount; ++i) {
    part[i] = to_bf16(x);
    if (i + 1 < kCount) x = _mm512_sub_ps(x, from_bf16(part[i]));  // this difference is exact
  }
}

/// Splits two vectors at once: 16-bit word i of a part is that of x0[i], and word 16 + i is that of x1[i].
template <int kCount>
FALCHION_INLINE void split(__m512 x0, __m512 x1, __m512i (&part)[kCount]) {
  #pragma GCC unroll 3
  for (int i = 0; i < kCount; ++i) {
    part[i] = (__m512i)_mm512_cvtne2ps_pbh(x1, x0);
    if (i + 1 == kCount) break;
    x0 = _mm512_sub_ps(x0, from_bf16(_mm512_castsi512_si256(part[i])));
    x1 = _mm512_sub_ps(x1, from_bf16(_mm512_extracti64x4_epi64(part[i], 1)));
  }
}
/// Puts 16-bit word 16 + i beside word i, so that two rows of operand B become pairs.
FALCHION_INLINE __m512i interleave(__m512i x) {
  alignas(64) static constexpr std::uint16_t kIndex[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kIndex), x);
}

/// Some numbers cannot be split into parts: NaN and infinities; numbers of at least 2^60, whose partial products may
/// overflow where the sum does not; and numbers below 2^-100, whose small parts AMX would flush to 0.
inline constexpr float kPartsBelow = 0x1p60f, kPartsFrom = 0x1p-100f;
FALCHION_INLINE bool has_parts(float x) {
  const float size = __builtin_fabsf(x);
  return x == 0 || (size >= kPartsFrom && size < kPartsBelow);
}

/// The lanes for which has_parts() is false.
FALCHION_INLINE __mmask16 without_parts(__m512 x) {
  const __m512 size = _mm512_abs_ps(x);
  const __mmask16 small = _mm512_cmp_ps_mask(size, _mm512_set1_ps(kPartsFrom), _CMP_LT_OQ);
  return static_cast<__mmask16>(_mm512_cmp_ps_mask(size, _mm512_set1_ps(kPartsBelow), _CMP_NLT_UQ) |
                                _mm512_mask_cmp_ps_mask(small, size, _mm512_setzero_ps(), _CMP_NEQ_UQ));
}

/// Loads up to 16 elements from p as parts, and 0 past n. An element that cannot be split into parts becomes 0, and its
/// bit is set in the result.
template <class T>
FALCHION_INLINE __mmask16 load_parts(const typename T::Bits* p, std::int64_t n, __m256i (&part)[kParts<T>]) {
  const __mmask16 lanes = first_lanes(n);
  if constexpr (kParts<T> == 1) {
    const __m256i exponent = _mm256_set1_epi16(0x7F80), x = _mm256_maskz_loadu_epi16(lanes, p);
    const __mmask16 spoiled = _mm256_cmpeq_epi16_mask(_mm256_and_si256(x, exponent), exponent);
    part[0] = _mm256_maskz_mov_epi16(static_cast<__mmask16>(~spoiled), x);
    return spoiled;
  } else {
    __m512 x;
    if constexpr (kParts<T> == 2) {
      x = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, p));
    } else {
      x = _mm512_maskz_loadu_ps(lanes, p);
    }
    const __mmask16 spoiled = without_parts(x);
    split(_mm512_maskz_mov_ps(static_cast<__mmask16>(~spoiled), x), part);
    return spoiled;
  }
}

}  // namespace falchion::cpu::FALCHION_LEVEL

#endif
