// src/cpu/blocks/amx_pack.hpp: packs matrices into AMX tiles and splits them into bf16 parts. A tile of operand A is 16
// rows of 32 numbers, and a tile of operand B is 16 rows of 16 pairs. The rows of a matrix are operand A as they are.
// Transposed, they are operand B of the transpose. Pairs of rows are operand B of the matrix.
#pragma once

#include "cpu/blocks/amx_tiles.hpp"
#include "cpu/blocks/products.hpp"
#include "cpu/blocks/split_bf16.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

inline constexpr std::int64_t kDepth = 32;  // the depth of a tile, in numbers

/// The order of a packed tile. Where the depth is tokens, both operands take the 32 tokens of a slice in the order 0,
/// 16, 1, 17, ... Then a 32-bit word holds one token from each half of the slice, and a transpose needs no shuffle
/// (turn_halves()).
enum class Order {
  kRows,        // 16 rows, 32 columns deep
  kTurnedRows,  // the same, transposed: 16 columns of the transpose in pairs
  kPairs,       // 32 rows deep, with rows 2 i and 2 i + 1 side by side
  kHalves,      // 32 rows deep, with rows i and i + 16 side by side
};
/// Whether the depth of a tile goes along the rows of the matrix.
constexpr bool down(Order order) { return order == Order::kPairs || order == Order::kHalves; }

/// A matrix in tiles. Its axes are (rows or columns / 16, parts, slices of the depth), and a slice is 32 deep.
template <int kPartsT>
struct Tiles {
  std::byte* data = nullptr;
  std::int64_t slices = 0;
  FALCHION_INLINE std::int64_t part() const { return slices * kTileBytes; }
  FALCHION_INLINE std::int64_t row() const { return kPartsT * part(); }
  FALCHION_INLINE Tiles from(std::int64_t row_or_column) const { return {data + row_or_column / 16 * row(), slices}; }
  FALCHION_INLINE std::byte* slice(std::int64_t s) const { return data + s * kTileBytes; }
};

/// Stores one tile from word[part][row].
template <int kPartsT>
FALCHION_INLINE void store_tile(const __m512i (&word)[kPartsT][16], std::byte* tile, std::int64_t part_bytes) {
  for (int p = 0; p < kPartsT; ++p, tile += part_bytes) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + i * 64, word[p][i]);
  }
}

/// A source of numbers: f32 rows. load<kOrder, kWhole> loads 32 numbers of row i of the tile at (row, col): either the
/// first and the last 16 columns of one row, or 16 columns of two rows. With kWhole the tile is inside the matrix;
/// otherwise numbers past the matrix's `rows` and `cols` are 0. It returns a mask of the words with a bad number
/// (without_parts()).
template <int kPartsT>
struct FloatSource {
  Matrix m;
  template <Order kOrder, bool kWhole>
  FALCHION_INLINE __mmask32 load(std::int64_t row, std::int64_t col, int i, std::int64_t rows, std::int64_t cols,
                                 __m512i (&part)[kPartsT]) const {
    constexpr int kDown = kOrder == Order::kPairs ? 1 : kOrder == Order::kHalves ? 16 : 0;
    constexpr int kAcross = kDown ? 0 : 16;
    row += kOrder == Order::kPairs ? 2 * i : i;
    const float* x = m.row(row) + col;
    const float* y = x + kDown * m.ld + kAcross;
    __m512 x0, x1;
    if constexpr (kWhole) {
      x0 = _mm512_loadu_ps(x);
      x1 = _mm512_loadu_ps(y);
    } else {
      x0 = _mm512_maskz_loadu_ps(row < rows ? first_lanes(cols - col) : __mmask16{0}, x);
      x1 = _mm512_maskz_loadu_ps(row + kDown < rows ? first_lanes(cols - col - kAcross) : __mmask16{0}, y);
    }
    split(x0, x1, part);
    if constexpr (kPartsT == 1) return 0;
    return without_parts(x0) | without_parts(x1);
  }
};
/// The same for bf16 rows in the caller's memory. With kFinite a NaN or infinite number is bad; otherwise none is.
template <bool kFinite>
struct InPlaceSource {
  const std::uint16_t* data;
  std::int64_t ld;
  template <Order kOrder, bool kWhole>
  FALCHION_INLINE __mmask32 load(std::int64_t row, std::int64_t col, int i, std::int64_t rows, std::int64_t cols,
                                 __m512i (&part)[1]) const {
    constexpr int kDown = kOrder == Order::kPairs ? 1 : kOrder == Order::kHalves ? 16 : 0;
    constexpr int kAcross = kDown ? 0 : 16;
    row += kOrder == Order::kPairs ? 2 * i : i;
    const std::uint16_t* x = data + row * ld + col;
    const std::uint16_t* y = x + kDown * ld + kAcross;
    if constexpr (kWhole && !down(kOrder)) {
      part[0] = _mm512_loadu_si512(x);
    } else {
      __m256i x0, x1;
      if constexpr (kWhole) {
        x0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
        x1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(y));
      } else {
        x0 = _mm256_maskz_loadu_epi16(row < rows ? first_lanes(cols - col) : __mmask16{0}, x);
        x1 = _mm256_maskz_loadu_epi16(row + kDown < rows ? first_lanes(cols - col - kAcross) : __mmask16{0}, y);
      }
      part[0] = _mm512_inserti64x4(_mm512_castsi256_si512(x0), x1, 1);
    }
    if constexpr (!kFinite) return 0;
    const __m512i exponent = _mm512_set1_epi16(0x7F80);
    return _mm512_cmpeq_epi16_mask(_mm512_and_si512(part[0], exponent), exponent);
  }
};

/// Packs the tile at (r, c) of a (rows, cols) matrix, whose depth is along the columns. Returns not 0 if a number is
/// bad.
template <int kPartsT, Order kOrder, class Source>
FALCHION_INLINE __mmask32 pack_tile(const Source& m, std::int64_t r, std::int64_t c, std::int64_t rows,
                                    std::int64_t cols, std::byte* tile, std::int64_t part_bytes) {
  static_assert(!down(kOrder));
  __mmask32 bad = 0;
  const auto pack = [&](auto whole) {
    __m512i word[kPartsT][16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m512i part[kPartsT];
      bad |= m.template load<kOrder, whole.value>(r, c, i, rows, cols, part);
      for (int p = 0; p < kPartsT; ++p) word[p][i] = part[p];
    }
    if constexpr (kOrder == Order::kTurnedRows) {
      for (int p = 0; p < kPartsT; ++p) transpose_16x16(word[p]);
    }
    store_tile<kPartsT>(word, tile, part_bytes);
  };
  const bool whole = rows - r >= 16 && cols - c >= kDepth;
  whole ? pack(std::true_type{}) : pack(std::false_type{});
  return bad;
}
/// The same for a depth that is along the rows: packs the tile at (r, c) and the one beside it. It goes row by row,
/// because 32 columns of bf16 are one cache line, and if rows are kilobytes apart L1 does not keep the lines of a whole
/// tile.
template <int kPartsT, Order kOrder, class Source>
FALCHION_INLINE __mmask32 pack_two_tiles(const Source& m, std::int64_t r, std::int64_t c, std::int64_t rows,
                                         std::int64_t cols, std::byte* tile0, std::byte* tile16,
                                         std::int64_t part_bytes) {
  __mmask32 bad = 0;
  const auto pack = [&](auto whole) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      for (std::byte* tile : {tile0, tile16}) {
        __m512i part[kPartsT];
        bad |= m.template load<kOrder, whole.value>(r, tile == tile0 ? c : c + 16, i, rows, cols, part);
        for (int p = 0; p < kPartsT; ++p) _mm512_store_si512(tile + p * part_bytes + i * 64, interleave(part[p]));
      }
    }
  };
  const bool whole = rows - r >= kDepth && cols - c >= kBlock;
  whole ? pack(std::true_type{}) : pack(std::false_type{});
  return bad;
}
/// Packs a whole (rows, cols) matrix and calls upcoming.long_step() once for each tile or two. Returns false if a
/// number is bad.
template <int kPartsT, Order kOrder, class Source>
bool pack_tiles(const Source& m, std::int64_t rows, std::int64_t cols, std::byte* out, Upcoming& upcoming) {
  const Tiles<kPartsT> tiles{out, ceil_div(down(kOrder) ? rows : cols, kDepth)};
  const std::int64_t count = round_up(down(kOrder) ? cols : rows, kBlock);
  __mmask32 bad = 0;
  if constexpr (down(kOrder)) {
    for (std::int64_t s = 0; s < tiles.slices; ++s) {
      for (std::int64_t t = 0; t < count; t += kBlock) {
        upcoming.long_step();
        bad |= pack_two_tiles<kPartsT, kOrder>(m, s * kDepth, t, rows, cols, tiles.from(t).slice(s),
                                               tiles.from(t + 16).slice(s), tiles.part());
      }
    }
  } else {
    for (std::int64_t t = 0; t < count; t += 16) {
      for (std::int64_t s = 0; s < tiles.slices; ++s) {
        upcoming.long_step();
        bad |= pack_tile<kPartsT, kOrder>(m, t, s * kDepth, rows, cols, tiles.from(t).slice(s), tiles.part());
      }
    }
  }
  return bad == 0;
}

/// Packs 16 rows of scores, 32 columns from p on, as operand A in the order kHalves. kFirst >= 0: the block is on the
/// diagonal and these are its rows from kFirst on; row i of the block then sees columns 0 to i. kFirst < 0: all columns
/// are visible. Returns not 0 if a number is bad.
template <int kPartsT, int kFirst>
FALCHION_INLINE __mmask32 pack_scores(const float* p, std::int64_t ld, std::byte* tile, std::int64_t part_bytes) {
  __m512i word[kPartsT][16];
  __mmask32 bad = 0;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const int seen = kFirst < 0 ? 32 : kFirst + i + 1;
    const __m512 x0 = _mm512_maskz_loadu_ps(first_lanes(seen), p + i * ld);
    const __m512 x1 = _mm512_maskz_loadu_ps(first_lanes(seen - 16), p + i * ld + 16);
    __m512i part[kPartsT];
    split(x0, x1, part);
    for (int k = 0; k < kPartsT; ++k) word[k][i] = interleave(part[k]);
    if constexpr (kPartsT > 1) bad |= without_parts(x0) | without_parts(x1);
  }
  store_tile<kPartsT>(word, tile, part_bytes);
  return bad;
}

/// Makes two tiles of operand A of Y^T (32 columns of Y, 32 tokens) from two tiles of order kTurnedRows (32 columns
/// deep, 16 tokens each). Word j of row i of these holds columns 2 i and 2 i + 1 of token j. So a row of Y^T consists
/// of the low or the high 16 bits of two such words, one from each tile.
FALCHION_INLINE void turn_halves(const std::byte* first16, const std::byte* last16, std::byte* columns0,
                                 std::byte* columns16) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const __m512i a = _mm512_load_si512(first16 + i * 64), b = _mm512_load_si512(last16 + i * 64);
    std::byte* to = (i < 8 ? columns0 : columns16) + i % 8 * 128;
    constexpr int kSelect = 0xCA;  // the truth table of "mask ? second : third"
    _mm512_store_si512(to, _mm512_ternarylogic_epi32(high, _mm512_slli_epi32(b, 16), a, kSelect));
    _mm512_store_si512(to + 64, _mm512_ternarylogic_epi32(high, b, _mm512_srli_epi32(a, 16), kSelect));
  }
}

}  // namespace falchion::cpu::FALCHION_LEVEL
