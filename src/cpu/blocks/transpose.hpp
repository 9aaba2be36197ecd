// src/cpu/blocks/transpose.hpp: a 16 x 16 transpose of 32-bit words, the base of all packing.
#pragma once

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

#if FALCHION_AVX512

/// Exchanges lane j of row[i] with lane i of row[j], in 64 shuffles.
FALCHION_INLINE void transpose_16x16(__m512i (&row)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    row[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    row[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    row[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    row[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(row[i], row[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(row[i], row[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(row[i + 8], row[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(row[i + 8], row[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    row[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    row[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

#endif

/// out[c * out_stride + r] = in[r * in_stride + c] for 16 rows r and 16 columns c.
FALCHION_INLINE void transpose_16x16(const float* in, std::int64_t in_stride, float* out, std::int64_t out_stride) {
#if FALCHION_AVX512
  __m512i row[16];
  for (int r = 0; r < 16; ++r) row[r] = _mm512_loadu_si512(in + r * in_stride);
  transpose_16x16(row);
  for (int c = 0; c < 16; ++c) _mm512_storeu_si512(out + c * out_stride, row[c]);
#else
  for (int r = 0; r < 16; ++r) {
    for (int c = 0; c < 16; ++c) out[c * out_stride + r] = in[r * in_stride + c];
  }
#endif
}

}  // namespace falchion::cpu::FALCHION_LEVEL
