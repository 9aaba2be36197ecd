// src/cpu/gemm/products_amx.hpp: C = A B^T of one work item on AMX tiles: bf16, e4m3 as bf16, which holds it exactly,
// and i8. Sums are f32, of i8 i32.
#pragma once

#include "cpu/blocks/amx_pack.hpp"
#include "cpu/blocks/tile_block.hpp"
#include "cpu/gemm/products.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// The numbers in a line of a tile, which has 64 bytes.
template <class T>
inline constexpr std::int64_t kLineDepth = std::is_same_v<T, i8> ? 64 : 32;

/// bf16 of 32 numbers of e4m3. A code below 8 has no exponent and stands for a multiple of 2^-9.
FALCHION_INLINE __m512i bf16_from_e4m3(__m256i codes) {
  const __m512i small = _mm512_castsi128_si512(
      _mm_setr_epi16(0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60));  // 0, 2^-9, ... 7 2^-9
  const __m512i code = _mm512_cvtepu8_epi16(codes), magnitude = _mm512_and_si512(code, _mm512_set1_epi16(0x7F));
  const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(code, _mm512_set1_epi16(0x80)), 8);
  __m512i bits = _mm512_slli_epi16(_mm512_add_epi16(magnitude, _mm512_set1_epi16(120 << 3)), 4);
  bits =
      _mm512_mask_permutexvar_epi16(bits, _mm512_cmplt_epi16_mask(magnitude, _mm512_set1_epi16(8)), magnitude, small);
  const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7F));
  return _mm512_or_si512(_mm512_mask_mov_epi16(bits, is_nan, _mm512_set1_epi16(0x7FC0)), sign);
}

/// A line of a tile, of the first `count` numbers at x and zeros.
template <class T>
FALCHION_INLINE __m512i load_line(const typename T::Bits* x, std::int64_t count) {
  const std::uint64_t some = count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  if constexpr (std::is_same_v<T, bf16>)
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>(some), x);
  else if constexpr (std::is_same_v<T, e4m3>)
    return bf16_from_e4m3(_mm256_maskz_loadu_epi8(static_cast<__mmask32>(some), x));
  else
    return _mm512_maskz_loadu_epi8(some, x);
}

/// Rows of an operand for pack_tile(), with any strides: a line of row i of the tile at (row, col). kRuns: each row is
/// contiguous.
template <class T, bool kRuns>
struct GemmTileSource {
  GemmRows<T> x;
  std::int64_t first;  // of k
  template <Order kOrder, bool kWhole>
  FALCHION_INLINE __mmask32 load(std::int64_t row, std::int64_t col, int i, std::int64_t rows, std::int64_t cols,
                                 __m512i (&part)[1]) const {
    static_assert(!down(kOrder));
    const std::int64_t count = row + i < rows ? min(kLineDepth<T>, cols - col) : 0;
    const auto* from = x.data + (count > 0 ? (row + i) * x.row : 0);
    if constexpr (kRuns) {
      part[0] = load_line<T>(from + first + col, count);
    } else {
      typename T::Bits line[kLineDepth<T>] = {};
      x.each_run(first + col, count, [&](const typename T::Bits* at, std::int64_t done, std::int64_t run) {
        for (std::int64_t k = 0; k < run; ++k) line[done + k] = at[(row + i) * x.row + k * x.step];
      });
      part[0] = load_line<T>(line, kLineDepth<T>);
    }
    return 0;
  }
};

template <class T>
class AmxGemm {
 public:
  using Scope = TileScope;
  static constexpr int kRows = 32, kColumns = 32;                           // of the tiles that are summed together
  static constexpr std::int64_t kLine = kLineDepth<T>, kDepth = 8 * kLine;  // of k
  /// b is transposed while it is packed, which costs more than packing a, so an item has more rows than columns. Its
  /// sums are 768 KB, and with them the packed operands of kDepth stay in an L2 of 2 MB.
  static constexpr GemmTile tile(int few_rows) { return {kRows, kColumns, 768, 256, kDepth, few_rows}; }

  AmxGemm(Arena& arena, std::int64_t rows, std::int64_t columns)
      : a_(arena.take<std::byte>(round_up(rows, kRows) * 8 * 64)),
        b_(arena.take<std::byte>(round_up(columns, kColumns) * 8 * 64)) {}

  void multiply(const GemmRows<T>& a, const GemmRows<T>& b, std::int64_t rows, std::int64_t columns, std::int64_t k,
                GemmSums c) {
    for (std::int64_t first = 0; first == 0 || first < k; first += kDepth) {
      const std::int64_t depth = min(kDepth, k - first);
      pack<Order::kRows>(a, k, rows, first, depth, a_);
      pack<Order::kTurnedRows>(b, k, columns, first, depth, b_);
      if (kBlockScales<T> && c.scales != nullptr) {
        c.scales->fetch(first, depth);
        scaled_tiles(rows, columns, depth, first, c);  // C = or += s_a s_b A B^T
      } else {
        tiles(rows, columns, ceil_div(depth, kLine), first == 0, c);  // C = or += A B^T
      }
    }
  }

 private:
  template <Order kOrder>
  static void pack(const GemmRows<T>& x, std::int64_t k, std::int64_t count, std::int64_t first, std::int64_t depth,
                   std::byte* out) {
    if (!x.whole(k)) return pack_from<kOrder>(GemmTileSource<T, false>{x, first}, count, depth, out);
    if constexpr (std::is_same_v<T, bf16>)
      pack_from<kOrder>(InPlaceSource<false>{x.data + first, x.row}, count, depth, out);
    else
      pack_from<kOrder>(GemmTileSource<T, true>{x, first}, count, depth, out);
  }
  template <Order kOrder, class Source>
  static void pack_from(const Source& source, std::int64_t count, std::int64_t depth, std::byte* out) {
    const Tiles<1> tiles{out, ceil_div(depth, kLine)};
    for (std::int64_t r = 0; r < round_up(count, kRows); r += 16) {
      for (std::int64_t s = 0; s < tiles.slices; ++s)
        pack_tile<1, kOrder>(source, r, s * kLine, count, depth, tiles.from(r).slice(s), tiles.part());
    }
  }
  void tiles(std::int64_t rows, std::int64_t columns, std::int64_t slices, bool first, GemmSums c) const {
    const Tiles<1> a{a_, slices}, b{b_, slices};
    for (std::int64_t j = 0; j < columns; j += kColumns) {
      for (std::int64_t i = 0; i < rows; i += kRows) {
        TileBlock sums(c.row(i) + j, c.ld, !first);
        sums.add<kExactSums<T>>({a.from(i).data, b.from(j).data, a.row(), b.row(), slices});  // C += A B^T
        sums.store();
      }
    }
  }
  /// A block is added to C while the tiles sum the next one, whose result would be waited for.
  void scaled_tiles(std::int64_t rows, std::int64_t columns, std::int64_t depth, std::int64_t first, GemmSums c) const {
    constexpr std::int64_t kSlices = kScaleBlock / kLine;
    const std::int64_t slices = ceil_div(depth, kLine);
    const Tiles<1> a{a_, slices}, b{b_, slices};
    alignas(64) float blocks[2][kRows * kColumns];
    const float* before = nullptr;
    std::int64_t i_before = 0, j_before = 0, s_before = 0;
    const auto add_before = [&] {
      if (before == nullptr) return;
      c.scales->add_tile<kRows, kColumns>(before, s_before / kSlices, i_before, j_before, first + s_before > 0,
                                          c.row(i_before) + j_before, c.ld);
    };
    for (std::int64_t j = 0; j < columns; j += kColumns) {
      for (std::int64_t i = 0; i < rows; i += kRows) {
        for (std::int64_t s = 0; s < slices; s += kSlices) {
          float* block = before == blocks[0] ? blocks[1] : blocks[0];
          TileBlock sums(block, kColumns, false);
          sums.add({a.from(i).slice(s), b.from(j).slice(s), a.row(), b.row(), min(kSlices, slices - s)});
          add_before();
          sums.store();
          before = block;
          i_before = i;
          j_before = j;
          s_before = s;
        }
      }
    }
    add_before();
  }

  std::byte *a_, *b_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
