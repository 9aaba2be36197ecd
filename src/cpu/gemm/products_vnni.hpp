// src/cpu/gemm/products_vnni.hpp: products of i8 with vpdpbusd, which adds four products of an unsigned and a signed
// byte to each i32. B is made unsigned by adding 128; this adds 128 times the sum of A's row to each sum, which is
// subtracted.
#pragma once

#include "cpu/blocks/transpose.hpp"
#include "cpu/gemm/products.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Adds 128 to each byte.
FALCHION_INLINE __m512i made_unsigned(__m512i x) { return _mm512_xor_si512(x, _mm512_set1_epi32(-0x7F7F7F80)); }
/// The first `count` of 64 bytes; the others are 0.
FALCHION_INLINE __m512i load_bytes(const std::int8_t* x, std::int64_t count) {
  const std::uint64_t some = count >= 64 ? ~std::uint64_t{0} : count > 0 ? (std::uint64_t{1} << count) - 1 : 0;
  return _mm512_maskz_loadu_epi8(some, x);
}

/// Packs rows into panels of words of four k: out[k / 4 * kWide + r]. If kWide is no multiple of 16, up to 15 words
/// behind the panel are overwritten, so panels are packed in ascending order.
template <int kWide, bool kUnsigned>
class WordPanel {
 public:
  WordPanel(const GemmRows<i8>& x, std::int64_t rows) : x_(x), rows_(rows) {}

  void pack(std::int64_t first, std::int64_t depth, std::int32_t* out) const {
    const bool runs = x_.step == 1 && first / x_.k1 == (first + max(depth, 1) - 1) / x_.k1;
    for (std::int64_t r = 0; r < kWide; r += 16) {
      if (x_.row == 1 && !runs) {
        for (std::int64_t k = 0; k < depth; k += 4) store(turned(r, first + k, depth - k), out + k / 4 * kWide + r);
        continue;
      }
      for (std::int64_t k = 0; k < depth; k += 64) {
        __m512i line[16];
        for (int i = 0; i < 16; ++i)
          line[i] = runs ? run(r + i, first + k, depth - k) : gathered(r + i, first + k, depth - k);
        transpose_16x16(line);
        const std::int64_t words = min(16, ceil_div(depth - k, 4));
        for (std::int64_t w = 0; w < words; ++w) store(line[w], out + (k / 4 + w) * kWide + r);
      }
    }
  }

 private:
  static FALCHION_INLINE void store(__m512i x, std::int32_t* to) {
    _mm512_storeu_si512(to, kUnsigned ? made_unsigned(x) : x);
  }
  FALCHION_INLINE const std::int8_t* at(std::int64_t k) const {
    return x_.data + k / x_.k1 * x_.k2 + k % x_.k1 * x_.step;
  }
  /// Up to 64 numbers of a row, from k on, that are contiguous.
  FALCHION_INLINE __m512i run(std::int64_t r, std::int64_t k, std::int64_t count) const {
    return r < rows_ ? load_bytes(at(k) + r * x_.row, count) : _mm512_setzero_si512();
  }
  /// The same for any strides.
  __m512i gathered(std::int64_t r, std::int64_t k, std::int64_t count) const {
    std::int8_t bytes[64] = {};
    if (r < rows_) {
      x_.each_run(k, min(count, 64), [&](const std::int8_t* from, std::int64_t done, std::int64_t run) {
        for (std::int64_t i = 0; i < run; ++i) bytes[done + i] = from[r * x_.row + i * x_.step];
      });
    }
    return _mm512_loadu_si512(bytes);
  }
  /// Up to four numbers, from k on, of each of 16 rows, where neighbouring rows are adjacent in memory.
  FALCHION_INLINE __m512i turned(std::int64_t r, std::int64_t k, std::int64_t count) const {
    const std::int64_t rows = rows_ - r;
    const auto some = static_cast<__mmask16>(rows >= 16 ? 0xFFFF : rows > 0 ? (1 << rows) - 1 : 0);
    __m128i x[4];
    for (int i = 0; i < 4; ++i) x[i] = i < count ? _mm_maskz_loadu_epi8(some, at(k + i) + r) : _mm_setzero_si128();
    const __m128i low0 = _mm_unpacklo_epi8(x[0], x[1]), low1 = _mm_unpacklo_epi8(x[2], x[3]);
    const __m128i high0 = _mm_unpackhi_epi8(x[0], x[1]), high1 = _mm_unpackhi_epi8(x[2], x[3]);
    __m512i out = _mm512_castsi128_si512(_mm_unpacklo_epi16(low0, low1));
    out = _mm512_inserti32x4(out, _mm_unpackhi_epi16(low0, low1), 1);
    out = _mm512_inserti32x4(out, _mm_unpacklo_epi16(high0, high1), 2);
    return _mm512_inserti32x4(out, _mm_unpackhi_epi16(high0, high1), 3);
  }

  const GemmRows<i8> x_;
  const std::int64_t rows_;
};

class VnniGemm {
 public:
  using Scope = int;  // nothing to set up in a thread
  // The register tile: 28 of 32 registers are sums. A panel of b of kDepth has 16 KB.
  static constexpr int kRows = 14, kVectors = 2, kColumns = 32, kDepth = 512;
  // With items of 518 x 512, whose sums alone fill an L2 of 1 MB, it was 6 to 9 % slower (docs/design/gemm.md).
  static constexpr GemmTile tile(int few_rows) { return {kRows, kColumns, 518, 256, kDepth, few_rows}; }

  VnniGemm(Arena& arena, std::int64_t rows, std::int64_t columns)
      : a_(arena.take<std::int32_t>(round_up(rows, kRows) * (kDepth / 4) + 16)),
        b_(arena.take<std::int32_t>(round_up(columns, kColumns) * (kDepth / 4))),
        start_(arena.take<std::int32_t>(ceil_div(rows, kRows) * 16)) {}

  void multiply(const GemmRows<i8>& a, const GemmRows<i8>& b, std::int64_t rows, std::int64_t columns, std::int64_t k,
                GemmSums c) {
    for (std::int64_t first = 0; first == 0 || first < k; first += kDepth) {
      const std::int64_t depth = min(kDepth, k - first), words = ceil_div(depth, 4);
      for (std::int64_t i = 0; i < rows; i += kRows) {
        std::int32_t* panel = a_ + i * words;
        WordPanel<kRows, false>(a.from(i), min(kRows, rows - i)).pack(first, depth, panel);
        _mm512_storeu_si512(start_ + i / kRows * 16, start_of(panel, words));
      }
      for (std::int64_t j = 0; j < columns; j += kColumns)
        WordPanel<kColumns, true>(b.from(j), min(kColumns, columns - j)).pack(first, depth, b_ + j * words);
      first == 0 ? tiles<false>(rows, columns, words, c) : tiles<true>(rows, columns, words, c);
    }
  }

 private:
  /// The start value of the sums of each row of a panel of a: -128 times the sum of the row.
  static __m512i start_of(const std::int32_t* panel, std::int64_t words) {
    __m512i sum = _mm512_setzero_si512();
    for (std::int64_t w = 0; w < words; ++w)
      sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_loadu_si512(panel + w * kRows));
    return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, 7));
  }
  template <bool kAccumulate>
  void tiles(std::int64_t rows, std::int64_t columns, std::int64_t words, GemmSums c) const {
    for (std::int64_t j = 0; j < columns; j += kColumns) {
      for (std::int64_t i = 0; i < rows; i += kRows)
        tile<kAccumulate>(a_ + i * words, b_ + j * words, words, start_ + i / kRows * 16, c.row(i) + j, c.ld);
    }
  }
  template <bool kAccumulate>
  static FALCHION_INLINE void tile(const std::int32_t* a, const std::int32_t* b, std::int64_t words,
                                   const std::int32_t* start, float* c, std::int64_t ld) {
    __m512i sums[kRows][kVectors];
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const __m512i of_row = _mm512_set1_epi32(start[r]);
#pragma GCC unroll 2
      for (int u = 0; u < kVectors; ++u)
        sums[r][u] = kAccumulate ? _mm512_add_epi32(_mm512_loadu_si512(c + r * ld + 16 * u), of_row) : of_row;
    }
    for (std::int64_t w = 0; w < words; ++w, a += kRows, b += kColumns) {
      const __m512i x[kVectors] = {_mm512_loadu_si512(b), _mm512_loadu_si512(b + 16)};
#pragma GCC unroll 14
      for (int r = 0; r < kRows; ++r) {
        const __m512i y = _mm512_set1_epi32(a[r]);
#pragma GCC unroll 2
        for (int u = 0; u < kVectors; ++u) sums[r][u] = _mm512_dpbusd_epi32(sums[r][u], x[u], y);
      }
    }
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int u = 0; u < kVectors; ++u) _mm512_storeu_si512(c + r * ld + 16 * u, sums[r][u]);
    }
  }

  std::int32_t *a_, *b_, *start_;
};

/// Few rows: b is read in place, with the lanes along k, as in few.hpp.
class FewVnniGemm {
 public:
  using Scope = int;
  static constexpr std::int64_t kDepth = 8192;

  FewVnniGemm(Arena& arena, std::int64_t rows, std::int64_t) : a_(arena.take<std::int8_t>(rows * kDepth)) {}

  void multiply(const GemmRows<i8>& a, const GemmRows<i8>& b, std::int64_t rows, std::int64_t columns, std::int64_t k,
                GemmSums c) {
    for (std::int64_t first = 0; first == 0 || first < k; first += kDepth) {
      const std::int64_t depth = min(kDepth, k - first);
      for (std::int64_t r = 0; r < rows; ++r) copy_row(a.from(r), first, depth, a_ + r * kDepth);
      std::int64_t j = 0;
      for (; j + 4 <= columns; j += 4) all_rows<4>(b.from(j), rows, first, depth, c.data + j, c.ld);
      for (; j < columns; ++j) all_rows<1>(b.from(j), rows, first, depth, c.data + j, c.ld);
    }
  }

 private:
  /// The rest of the last 64 bytes is 0.
  static void copy_row(const GemmRows<i8>& a, std::int64_t first, std::int64_t depth, std::int8_t* out) {
    a.each_run(first, depth, [&](const std::int8_t* from, std::int64_t done, std::int64_t run) {
      if (a.step == 1) {
        std::memcpy(out + done, from, static_cast<std::size_t>(run));
        return;
      }
      for (std::int64_t i = 0; i < run; ++i) out[done + i] = from[i * a.step];
    });
    for (std::int64_t k = depth; k < round_up(depth, 64); ++k) out[k] = 0;
  }
  template <int kB>
  void all_rows(const GemmRows<i8>& b, std::int64_t rows, std::int64_t first, std::int64_t depth, float* sums,
                std::int64_t ld) const {
    std::int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
      dots<4, kB>(a_ + r * kDepth, b.data + first, b.row, depth, first == 0, sums + r * ld, ld);
    for (; r < rows; ++r) dots<1, kB>(a_ + r * kDepth, b.data + first, b.row, depth, first == 0, sums + r * ld, ld);
  }
  /// sums[r * ld + c] = or += kA rows of a times kB rows of b.
  template <int kA, int kB>
  static FALCHION_INLINE void dots(const std::int8_t* a, const std::int8_t* b, std::int64_t b_row, std::int64_t depth,
                                   bool is_first, float* sums, std::int64_t ld) {
    __m512i products[kA][kB] = {}, of_a[kA] = {};
    for (std::int64_t k = 0; k < depth; k += 64) {
      __m512i y[kB];
      for (int c = 0; c < kB; ++c) y[c] = made_unsigned(load_bytes(b + c * b_row + k, depth - k));
      for (int r = 0; r < kA; ++r) {
        const __m512i x = _mm512_loadu_si512(a + r * kDepth + k);
        of_a[r] = _mm512_dpbusd_epi32(of_a[r], _mm512_set1_epi8(1), x);
        for (int c = 0; c < kB; ++c) products[r][c] = _mm512_dpbusd_epi32(products[r][c], y[c], x);
      }
    }
    for (int r = 0; r < kA; ++r) {
      for (int c = 0; c < kB; ++c) {
        const __m512i sum = _mm512_sub_epi32(products[r][c], _mm512_slli_epi32(of_a[r], 7));
        add(_mm512_reduce_add_epi32(sum), is_first, sums + r * ld + c);
      }
    }
  }
  static FALCHION_INLINE void add(std::int32_t sum, bool is_first, float* to) {
    std::int32_t before = 0;
    if (!is_first) std::memcpy(&before, to, sizeof before);
    before += sum;
    std::memcpy(to, &before, sizeof before);
  }

  std::int8_t* a_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
