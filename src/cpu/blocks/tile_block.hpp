// src/cpu/blocks/tile_block.hpp: C (32, 32) = or += a sum of products of bf16 tiles, A B. On AMX C is in the tile
// registers until store(). The level avx512_bf16 takes the same packed tiles, and its C is in vectors: a line of A has
// 16 pairs, each of which is broadcast to the lanes of vdpbf16ps, and a row of B is 16 pairs. Both round to bf16 where
// they pack, sum in f32, round each sum to nearest, and flush denormals; only the order of the sum over a pair differs.
#pragma once

#include "cpu/blocks/amx_tiles.hpp"
#include "cpu/blocks/multiply_tile.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// The operands of a block, `slices` tiles deep.
struct TileOperands {
  const std::byte *a, *b;
  std::int64_t a_row, b_row;  // bytes from the first tile of A, or of B, to the second one, which is beside it in C
  std::int64_t slices;
  std::int64_t a_line = 64, a_slice = kTileBytes;  // bytes of A from one line to the next, from one tile to the next
};

#if !defined(FALCHION_LEVEL_AVX512_BF16)

/// Whether a product can go on one step at a time, under other work.
inline constexpr bool kTileSteps = true;

class TileBlock {
 public:
  /// from_c: the sum begins at C, not at 0.
  FALCHION_INLINE TileBlock(float* c, std::int64_t ld, bool from_c) : c_(c), ld_(ld) {
    from_c ? tile_load_2x2(c, ld) : tile_zero_2x2();
  }
  /// between.step() is called before each slice. kBytes: the tiles are of i8.
  template <bool kBytes = false, class Between = Nothing>
  FALCHION_INLINE void add(const TileOperands& x, Between&& between = {}) {
    const std::byte *a = x.a, *b = x.b;
    for (std::int64_t s = 0; s < x.slices; ++s, a += x.a_slice, b += kTileBytes) {
      between.step();
      tile_dot_2x2<kBytes>(a, x.a_line, x.a_row, b, x.b_row);
    }
  }
  FALCHION_INLINE void store() { tile_store_2x2(c_, ld_); }

 private:
  float* c_;
  std::int64_t ld_;
};

#else

inline constexpr bool kTileSteps = false;

class TileBlock {
 public:
  FALCHION_INLINE TileBlock(float* c, std::int64_t ld, bool from_c) : c_(c), ld_(ld), from_c_(from_c) {}
  template <bool kBytes = false, class Between = Nothing>
  FALCHION_INLINE void add(const TileOperands& x, Between&& between = {}) {
    static_assert(!kBytes, "level vnni has the products of bytes");
    for (int r = 0; r < 32; r += kLines) {
      const std::byte* a = x.a + r / kTileRows * x.a_row + r % kTileRows * x.a_line;
      for (std::int64_t s = 0; s < x.slices; s += 4) between.step();
      if (x.a_line == 64) {
        multiply<64>(a, x, 64, c_ + r * ld_);
      } else {
        multiply<0>(a, x, x.a_line, c_ + r * ld_);
      }
    }
    from_c_ = true;
  }
  FALCHION_INLINE void store() {}

 private:
  static constexpr int kLines = 8;  // of A at a time: 16 of 32 registers are sums

  /// kLines rows of C. kLine: a_line, if the compiler is to know it.
  template <std::int64_t kLine>
  __attribute__((noinline)) void multiply(const std::byte* a, const TileOperands& x, std::int64_t a_line,
                                          float* c) const {
    const std::int64_t line = kLine > 0 ? kLine : a_line, slices = x.slices, a_next = x.a_slice - 64, b_row = x.b_row;
    const std::byte* b = x.b;
    __m512 sum[kLines][2];
  #pragma GCC unroll 8
    for (int r = 0; r < kLines; ++r) {
  #pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) sum[r][v] = from_c_ ? _mm512_loadu_ps(c + r * ld_ + v * 16) : _mm512_setzero_ps();
    }
    for (std::int64_t s = 0; s < slices; ++s, a += a_next) {
  #pragma GCC unroll 2
      for (int pair = 0; pair < 16; ++pair, a += 4, b += 64) {
        const __m512bh columns[2] = {(__m512bh)_mm512_loadu_si512(b), (__m512bh)_mm512_loadu_si512(b + b_row)};
  #pragma GCC unroll 8
        for (int r = 0; r < kLines; ++r) {
          std::int32_t word;
          std::memcpy(&word, a + r * line, sizeof word);
          const auto row = (__m512bh)_mm512_set1_epi32(word);
  #pragma GCC unroll 2
          for (int v = 0; v < 2; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], row, columns[v]);
        }
      }
    }
  #pragma GCC unroll 8
    for (int r = 0; r < kLines; ++r) {
  #pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) _mm512_storeu_ps(c + r * ld_ + v * 16, sum[r][v]);
    }
  }

  float* c_;
  std::int64_t ld_;
  bool from_c_;
};

#endif

}  // namespace falchion::cpu::FALCHION_LEVEL
