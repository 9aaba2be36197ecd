// src/cpu/blocks/amx_tiles.hpp: the eight AMX tile registers, 16 rows of 64 bytes each, the seven instructions in use,
// and the positions of a product and of a prefetch that advance one step at a time. At the level amx_emulated the same
// names work on plain memory, so that the AMX kernels are tested on CPUs without AMX. Source: Intel 64 and IA-32 SDM
// volume 2, TILELOADD, TILESTORED, TDPBF16PS, TDPBSSD, LDTILECFG.
#pragma once

#include "cpu/blocks/level.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

inline constexpr int kTileRows = 16, kTileBytes = 1024;

#if defined(FALCHION_LEVEL_AMX)

/// During its lifetime, the thread's tile registers are configured as 8 x (16 rows x 64 bytes).
struct TileScope {
  TileScope() {
    struct alignas(64) {
      std::uint8_t palette = 1;
      std::uint8_t start_row = 0;
      std::uint8_t reserved[14] = {};
      std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~TileScope() { asm volatile("tilerelease" :::); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

template <int kTile>
FALCHION_INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kTile>
FALCHION_INLINE void tile_load(const void* p, std::int64_t stride = 64) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
}
template <int kTile>
FALCHION_INLINE void tile_store(void* p, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
}
/// tile C += A B: C (16, 16) f32, A (16, 32) bf16, B (16 pairs, 16, 2) bf16.
template <int kC, int kA, int kB>
FALCHION_INLINE void tile_dot() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}
/// The same for bytes: C (16, 16) i32, A (16, 64) i8, B (16 fours, 16, 4) i8.
template <int kC, int kA, int kB>
FALCHION_INLINE void tile_dot_bytes() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

#else

struct TileScope {
  TileScope() {}
};

inline thread_local std::uint32_t emulated_tile[8][16][16];

template <int kTile>
void tile_zero() {
  std::memset(emulated_tile[kTile], 0, kTileBytes);
}
template <int kTile>
void tile_load(const void* p, std::int64_t stride = 64) {
  for (int r = 0; r < 16; ++r) std::memcpy(emulated_tile[kTile][r], static_cast<const char*>(p) + r * stride, 64);
}
template <int kTile>
void tile_store(void* p, std::int64_t stride) {
  for (int r = 0; r < 16; ++r) std::memcpy(static_cast<char*>(p) + r * stride, emulated_tile[kTile][r], 64);
}
template <int kC, int kA, int kB>
void tile_dot() {
  for (int m = 0; m < 16; ++m) {
    __m512 sum = _mm512_loadu_ps(emulated_tile[kC][m]);
    for (int k = 0; k < 16; ++k) {
      const auto a = (__m512bh)_mm512_set1_epi32(static_cast<int>(emulated_tile[kA][m][k]));
      sum = _mm512_dpbf16_ps(sum, a, (__m512bh)_mm512_loadu_si512(emulated_tile[kB][k]));
    }
    _mm512_storeu_ps(emulated_tile[kC][m], sum);
  }
}
template <int kC, int kA, int kB>
void tile_dot_bytes() {
  const __m512i flip = _mm512_set1_epi8(-128);  // a + 128 is unsigned; 128 b is subtracted again
  for (int m = 0; m < 16; ++m) {
    __m512i sum = _mm512_loadu_si512(emulated_tile[kC][m]), more = _mm512_setzero_si512();
    for (int k = 0; k < 16; ++k) {
      const __m512i a = _mm512_set1_epi32(static_cast<int>(emulated_tile[kA][m][k]));
      const __m512i b = _mm512_loadu_si512(emulated_tile[kB][k]);
      sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(a, flip), b);
      more = _mm512_dpbusd_epi32(more, flip, b);
    }
    _mm512_storeu_si512(emulated_tile[kC][m], _mm512_sub_epi32(sum, more));
  }
}

#endif

// A 2 x 2 block of tiles: C is in tiles 0 to 3 and has (32, 32) floats, whose rows are c_row apart in memory. A goes
// through tiles 4 and 5, B through tiles 6 and 7.
FALCHION_INLINE void tile_zero_2x2() {
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
}
FALCHION_INLINE void tile_load_2x2(const float* c, std::int64_t c_row) {
  const std::int64_t line = c_row * static_cast<std::int64_t>(sizeof(float));
  tile_load<0>(c, line);
  tile_load<1>(c + 16, line);
  tile_load<2>(c + 16 * c_row, line);
  tile_load<3>(c + 16 * c_row + 16, line);
}
FALCHION_INLINE void tile_store_2x2(float* c, std::int64_t c_row) {
  const std::int64_t line = c_row * static_cast<std::int64_t>(sizeof(float));
  tile_store<0>(c, line);
  tile_store<1>(c + 16, line);
  tile_store<2>(c + 16 * c_row, line);
  tile_store<3>(c + 16 * c_row + 16, line);
}
/// C += A B, 32 deep, or with kBytes 64, of i8. a_line is the number of bytes from one line of a tile of A to the next;
/// a_row and b_col are the numbers of bytes to the other tile of A and of B in the block.
template <bool kBytes = false>
FALCHION_INLINE void tile_dot_2x2(const std::byte* a, std::int64_t a_line, std::int64_t a_row, const std::byte* b,
                                  std::int64_t b_col) {
  tile_load<6>(b);
  tile_load<4>(a, a_line);
  tile_load<7>(b + b_col);
  tile_load<5>(a + a_row, a_line);
  if constexpr (kBytes) {
    tile_dot_bytes<0, 4, 6>();
    tile_dot_bytes<1, 4, 7>();
    tile_dot_bytes<2, 5, 6>();
    tile_dot_bytes<3, 5, 7>();
  } else {
    tile_dot<0, 4, 6>();
    tile_dot<1, 4, 7>();
    tile_dot<2, 5, 6>();
    tile_dot<3, 5, 7>();
  }
}

/// The state of one product: groups of 2 x 2 tiles of C, each of which is summed over products x slices. Every field
/// has 8 bytes. With 4-byte counters the compiler tested two neighbours with one 8-byte load, which cannot be forwarded
/// from their two stores. So each step waited for all the tile stores before it (2.0 -> 1.1 TFLOP/s a core).
struct TileStream {
  const std::byte *a_group = nullptr, *b_group = nullptr;
  float* c = nullptr;
  std::int64_t part = 0,
               row = 0;  // bytes from one part to the next (A and B) and from one row of tiles to the next (B)
  std::int64_t slices = 0, groups = 0;
  // Bytes of A from one line of a tile to the next, from one tile to the next, and from one row of tiles to the next.
  std::int64_t a_line = 64, a_slice = kTileBytes, a_row = 0;
  std::int64_t slice = 0, product = 0;
};

/// Prefetches packed K and V into L2, one pair of cache lines of each at a step.
struct L2Prefetch {
  const std::byte *k = nullptr, *v = nullptr;
  std::int64_t left = 0;  // how many pairs of lines are left
  FALCHION_INLINE void step() {
    if (left <= 0) return;
    _mm_prefetch(k, _MM_HINT_T1);
    _mm_prefetch(k + 64, _MM_HINT_T1);
    _mm_prefetch(v, _MM_HINT_T1);
    _mm_prefetch(v + 64, _MM_HINT_T1);
    k += 128;
    v += 128;
    --left;
  }
};

}  // namespace falchion::cpu::FALCHION_LEVEL
