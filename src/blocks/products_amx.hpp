// src/blocks/products_amx.hpp: the four products of products.hpp on AMX tiles, for bf16 (one part) and f16 (two).
// What goes in is split into bf16 parts on its way into tile order. A tile of operand A is 16 rows of 32 numbers, one
// of operand B 16 rows of 16 pairs. Rows of a matrix make A as they lie and, turned, B of its transpose; pairs of rows
// make B and, turned, A of the transpose.
#pragma once

#include "blocks/amx_tiles.hpp"
#include "blocks/elements.hpp"
#include "blocks/products.hpp"
#include "blocks/split_bf16.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

template <class T>
class AmxProducts {
 public:
  using Scope = TileScope;
  static constexpr bool kFetches = false;  // docs/design/cpu_linear_attention.md
  static constexpr bool kBf16 = kParts<T> == 1;
  static FALCHION_INLINE Floats rounded(Floats x) { return kBf16 ? Floats{from_bf16(to_bf16(x.raw))} : x; }

  AmxProducts(Arena& arena, std::int64_t widest) : plain_(arena, widest) {
    const std::int64_t wide = round_up(max(widest, kChunk), kBlock);
    const auto take = [&](std::int64_t rows, std::int64_t depth) {
      return arena.take<std::byte>(rows * depth / (16 * kDepth) * kPartsT * kTileBytes);
    };
    x_ = take(kChunk, wide), w_ = take(wide, kChunk), a_ = take(wide, kChunk), b_ = take(wide, wide);
    sum_ = arena.take<float>(kBlock * kBlock);
  }

  Upcoming& upcoming() { return plain_.upcoming(); }
  void start() { packed_x_ = packed_w_ = nullptr; }

  // A product whose numbers have no parts (split_bf16.hpp) goes the way of IEEE, and so do zeros that may not touch
  // what is not finite.
  void scores(std::int64_t n, const Rows& x, const Rows& y, Matrix p) {
    packed_x_ = pack_rows<kAsRows, kAsItLies>(n, x, x_) ? x.m.data : nullptr, packed_width_ = x.width;
    if (packed_x_ == nullptr || !pack_rows<kAsRows, kTurned>(n, y, b_)) return plain_.scores(n, x, y, p);
    const std::int64_t slices = ceil_div(x.width, kDepth);
    for (std::int64_t c = 0; c < n; c += kBlock) {
      for (std::int64_t r = c; r < n; r += kBlock) block<false>(x_, b_, r, c, slices, slices, p);
    }
  }
  void values(std::int64_t n, Matrix p, const Rows& w, Matrix out) {
    packed_w_ = pack_rows<kAsPairs, kAsItLies>(n, w, w_) ? w.m.data : nullptr;
    if (packed_w_ == nullptr || !finite(n, w) || !pack<kAsRows, kAsItLies>(Matrix32{p}, n, n, a_, true))
      return plain_.values(n, p, in_f32(n, w), out);
    for (std::int64_t c = 0; c < w.width; c += kBlock) {
      for (std::int64_t r = 0; r < n; r += kBlock) block<false>(a_, w_, r, c, ceil_div(n, kDepth), r / kDepth + 1, out);
    }
  }
  void carry(std::int64_t n, const Rows& x, Matrix s, std::int64_t w, Matrix out) {
    const std::byte* a = x.m.data == packed_x_ && x.width == packed_width_ ? x_ : a_;
    if ((a == a_ && !pack_rows<kAsRows, kAsItLies>(n, x, a_)) ||
        !pack<kAsPairs, kAsItLies>(Matrix32{s}, x.width, w, b_))
      return plain_.carry(n, x, s, w, out);
    multiply<true>(a, b_, n, w, x.width, out);
  }
  template <bool kAccumulate>
  void update(std::int64_t n, const Rows& y, const Rows& w, Matrix s) {
    if (!pack_rows<kAsPairs, kTurned>(n, y, a_) || (w.m.data != packed_w_ && !pack_rows<kAsPairs, kAsItLies>(n, w, w_)))
      return plain_.update<kAccumulate>(n, y, w, s);
    multiply<kAccumulate>(a_, w_, y.width, w.width, n, s);
  }

 private:
  static constexpr int kPartsT = kParts<T>;
  static constexpr std::int64_t kDepth = 32;  // of a tile
  // Like AmxEngine: one-part types sum in the tiles, the others from 0, small products first.
  static constexpr bool kSumInTiles = kPartsT == 1;
  enum Order { kAsRows, kAsPairs };
  enum Turn { kAsItLies, kTurned };

  // ---- tiles (rows or columns / 16, parts, slices of 32 deep) ------------------------------------------------------
  template <bool kAccumulate>
  void multiply(const std::byte* a, const std::byte* b, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                Matrix c) const {
    const std::int64_t slices = ceil_div(depth, kDepth);
    for (std::int64_t u = 0; u < cols; u += kBlock) {
      for (std::int64_t r = 0; r < rows; r += kBlock) block<kAccumulate>(a, b, r, u, slices, slices, c);
    }
  }
  /// The block of C at (r, u), of which the first `used` slices count.
  template <bool kAccumulate>
  void block(const std::byte* a, const std::byte* b, std::int64_t r, std::int64_t u, std::int64_t slices,
             std::int64_t used, Matrix c) const {
    const std::int64_t part = slices * kTileBytes, row = kPartsT * part;
    float* out = c.row(r) + u;
    kAccumulate&& kSumInTiles ? tile_load_2x2(out, c.ld) : tile_zero_2x2();
    for (int i = 0; i < kProducts<T>; ++i) {
      const std::byte *x = a + r / 16 * row + kProduct<T>[i].a * part, *y = b + u / 16 * row + kProduct<T>[i].b * part;
      for (std::int64_t s = 0; s < used; ++s) tile_dot_2x2(x + s * kTileBytes, 64, row, y + s * kTileBytes, row);
    }
    if (!kAccumulate || kSumInTiles) return tile_store_2x2(out, c.ld);
    tile_store_2x2(sum_, kBlock);
    for (int i = 0; i < kBlock; ++i) {
      for (int v = 0; v < kBlock; v += kLanes)
        store(hn::Add(load(out + i * c.ld + v), load(sum_ + i * kBlock + v)), out + i * c.ld + v);
    }
  }

  // ---- what tiles are made of: load gives 32 numbers of row i of a tile at (row, col), the first and the last 16 of a
  // row or, as pairs, 16 of two rows. kWhole: the tile lies in the matrix, else 0 past its `rows` and `cols`
  // -----------
  struct Matrix32 {
    Matrix m;
    template <Order kOrder, bool kWhole>
    FALCHION_INLINE __mmask16 load(std::int64_t row, std::int64_t col, int i, std::int64_t rows, std::int64_t cols,
                                   __m512i (&part)[kPartsT]) const {
      constexpr int kDown = kOrder == kAsPairs ? 1 : 0, kAcross = 16 - 16 * kDown;
      row += i * (1 + kDown);
      const float* x = m.row(row) + col;
      const float* y = x + kDown * m.ld + kAcross;
      __m512 x0, x1;
      if constexpr (kWhole) {
        x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(y);
      } else {
        x0 = _mm512_maskz_loadu_ps(row < rows ? first_lanes(cols - col) : __mmask16{0}, x);
        x1 = _mm512_maskz_loadu_ps(row + kDown < rows ? first_lanes(cols - col - kAcross) : __mmask16{0}, y);
      }
      split(x0, x1, part);
      if constexpr (kPartsT == 1) return 0;
      return without_parts(x0) | without_parts(x1);
    }
  };
  struct MatrixInPlace {
    const std::uint16_t* data;
    std::int64_t ld;
    template <Order kOrder, bool kWhole>
    FALCHION_INLINE __mmask16 load(std::int64_t row, std::int64_t col, int i, std::int64_t rows, std::int64_t cols,
                                   __m512i (&part)[kPartsT]) const {
      constexpr int kDown = kOrder == kAsPairs ? 1 : 0, kAcross = 16 - 16 * kDown;
      row += i * (1 + kDown);
      const std::uint16_t* x = data + row * ld + col;
      const std::uint16_t* y = x + kDown * ld + kAcross;
      __m256i x0, x1;
      if constexpr (kWhole) {
        x0 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
        x1 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(y));
      } else {
        x0 = _mm256_maskz_loadu_epi16(row < rows ? first_lanes(cols - col) : __mmask16{0}, x);
        x1 = _mm256_maskz_loadu_epi16(row + kDown < rows ? first_lanes(cols - col - kAcross) : __mmask16{0}, y);
      }
      part[0] = _mm512_inserti64x4(_mm512_castsi256_si512(x0), x1, 1);
      return 0;
    }
  };

  /// A matrix in tile order; causal: nothing past the block of a row. False where a number has no parts.
  template <Order kOrder, Turn kTurn, class Source>
  static bool pack(const Source& m, std::int64_t rows, std::int64_t cols, std::byte* out, bool causal = false) {
    constexpr bool kPairs = kOrder == kAsPairs;
    const std::int64_t count = kPairs ? cols : rows, depth = kPairs ? rows : cols, slices = ceil_div(depth, kDepth);
    __mmask16 bad = 0;
    for (std::int64_t i = 0; i < count; i += kBlock) {
      for (std::int64_t s = 0; s < (causal ? i / kDepth + 1 : slices); ++s) {
        for (std::int64_t t = i; t < i + kBlock; t += 16) {
          const std::int64_t r = kPairs ? s * kDepth : t, c = kPairs ? t : s * kDepth;
          std::byte* tile = out + (t / 16 * kPartsT * slices + s) * kTileBytes;
          const bool whole = rows - r >= (kPairs ? 32 : 16) && cols - c >= (kPairs ? 16 : 32);
          bad |= whole ? pack_tile<kOrder, kTurn, true>(m, r, c, rows, cols, tile, slices)
                       : pack_tile<kOrder, kTurn, false>(m, r, c, rows, cols, tile, slices);
        }
      }
    }
    return bad == 0;
  }
  template <Order kOrder, Turn kTurn, bool kWhole, class Source>
  static FALCHION_INLINE __mmask16 pack_tile(const Source& m, std::int64_t r, std::int64_t c, std::int64_t rows,
                                             std::int64_t cols, std::byte* tile, std::int64_t slices) {
    __m512i word[kPartsT][16];
    __mmask16 bad = 0;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m512i part[kPartsT];
      bad |= m.template load<kOrder, kWhole>(r, c, i, rows, cols, part);
      for (int p = 0; p < kPartsT; ++p) word[p][i] = kOrder == kAsPairs ? interleave(part[p]) : part[p];
    }
    for (int p = 0; p < kPartsT; ++p, tile += slices * kTileBytes) {
      if constexpr (kTurn == kTurned) transpose_16x16(word[p]);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_store_si512(tile + i * 64, word[p][i]);
    }
    return bad;
  }
  template <Order kOrder, Turn kTurn>
  static bool pack_rows(std::int64_t n, const Rows& x, std::byte* out) {
    if constexpr (kBf16) {
      if (x.in_place != nullptr) return pack<kOrder, kTurn>(MatrixInPlace{x.in_place, x.in_place_row}, n, x.width, out);
    }
    return pack<kOrder, kTurn>(Matrix32{x.m}, n, x.width, out);
  }
  static Rows in_f32(std::int64_t n, const Rows& w) {
    if (w.in_place == nullptr) return w;
    for (std::int64_t i = 0; i < n; ++i) convert<bf16>(w.in_place + i * w.in_place_row, w.width, w.m.row(i));
    return {w.m, w.width, true};
  }
  static bool finite(std::int64_t n, const Rows& w) {
    if (w.in_place == nullptr) return !w.spoiled;
    __mmask32 bad = 0;
    const __m512i exponent = _mm512_set1_epi16(0x7F80);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t c = 0; c < w.width; c += 32) {
        const __mmask32 lanes = first_lanes(w.width - c) | std::uint32_t{first_lanes(w.width - c - 16)} << 16;
        const __m512i x = _mm512_maskz_loadu_epi16(lanes, w.in_place + i * w.in_place_row + c);
        bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
      }
    }
    return bad == 0;
  }

  SimdProducts plain_;
  std::byte *x_, *w_, *a_, *b_;                            // X and W of the chunk; whatever else a product takes
  const float *packed_x_ = nullptr, *packed_w_ = nullptr;  // what x_ and w_ were made of
  std::int64_t packed_width_ = 0;
  float* sum_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
