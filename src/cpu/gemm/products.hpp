// src/cpu/gemm/products.hpp: C = A B^T of one work item, with fused multiply-adds on packed panels (Goto and van de
// Geijn 2008, "Anatomy of high-performance matrix multiplication").
#pragma once

#include "cpu/blocks/arena.hpp"
#include "cpu/blocks/multiply_tile.hpp"
#include "cpu/gemm/block_scales.hpp"
#include "cpu/gemm/pack.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// The sums of an item, in f32; those of i8 are exact i32, stored as the same 32 bits. Rows are `ld` numbers apart, and
/// rows and columns past the item's, up to a whole register tile, are undefined. Scales of blocks are part of the sums.
struct GemmSums {
  float* data = nullptr;
  std::int64_t ld = 0;
  BlockScales* scales = nullptr;  // null: none
  FALCHION_INLINE float* row(std::int64_t i) const { return data + i * ld; }
};

/// Whether sums of this type are i32.
template <class T>
inline constexpr bool kExactSums = std::is_same_v<T, i8>;

FALCHION_INLINE Int32s to_int(Floats bits) { return hn::BitCast(Int32Tag(), bits); }
FALCHION_INLINE Floats to_bits(Int32s x) { return hn::BitCast(kFloats, x); }

/// Numbers of every type are packed as f32. A block of kDepth products of i8, each at most 2^14, sums to 2^22 at most,
/// so its sum in f32 is exact too; blocks are added up in i32.
template <class T>
class SimdGemm {
 public:
  using Scope = int;  // nothing to set up in a thread
  // The register tile: 28 of AVX-512's 32 registers are sums, 12 of AVX2's 16, 24 of NEON's 32. A panel of b of kDepth
  // (32 KB on AVX-512) is read once for each panel of rows.
  static constexpr int kRows = kLanes == 16 ? 14 : kLanes == 8 ? 6 : kLanes == 4 ? 8 : 4;
  static constexpr int kVectors = kLanes == 4 ? 3 : kLanes == 1 ? 4 : 2;
  static constexpr int kColumns = kVectors * kLanes;
  static constexpr int kDepth = 256;
  static constexpr GemmTile tile(int few_rows) {
    constexpr int kMost = 512;  // 4 % faster than 256 on AVX-512 and 12 % on AVX2 (docs/design/gemm.md)
    return {kRows,  kColumns, (kMost + kRows - 1) / kRows * kRows, (kMost + kColumns - 1) / kColumns * kColumns,
            kDepth, few_rows};
  }

  SimdGemm(Arena& arena, std::int64_t rows, std::int64_t columns)
      : a_(arena.take<float>(round_up(rows, kRows) * kDepth + 16)),
        b_(arena.take<float>(round_up(columns, kColumns) * kDepth + 16)) {}

  void multiply(const GemmRows<T>& a, const GemmRows<T>& b, std::int64_t rows, std::int64_t columns, std::int64_t k,
                GemmSums c) {
    for (std::int64_t first = 0; first == 0 || first < k; first += kDepth) {
      const std::int64_t depth = min(kDepth, k - first);
      pack<kRows>(a, rows, first, depth, a_);
      pack<kColumns>(b, columns, first, depth, b_);
      if (kBlockScales<T> && c.scales != nullptr) {
        c.scales->fetch(first, depth);
        scaled_tiles(rows, columns, depth, first, c);
        continue;
      }
      first == 0 ? tiles<false>(rows, columns, depth, c) : tiles<true>(rows, columns, depth, c);  // C = or += A B^T
    }
  }

 private:
  template <int kWide>
  static void pack(const GemmRows<T>& x, std::int64_t count, std::int64_t first, std::int64_t depth, float* out) {
    for (std::int64_t r = 0; r < count; r += kWide)
      pack_panel<T, kWide>(x.from(r), min(kWide, count - r), first, depth, out + r * depth);
  }
  template <bool kAccumulate>
  void tiles(std::int64_t rows, std::int64_t columns, std::int64_t depth, GemmSums c) {
    for (std::int64_t j = 0; j < columns; j += kColumns) {
      for (std::int64_t i = 0; i < rows; i += kRows) {
        if constexpr (kExactSums<T>) {
          alignas(64) float block[kRows * kColumns];
          multiply_tile<Into::nothing, kRows, kVectors>(a_ + i * depth, 1, kRows, b_ + j * depth, kColumns, depth,
                                                        block, kColumns);
          add_block<kAccumulate>(block, c.row(i) + j, c.ld);
        } else {
          multiply_tile<(kAccumulate ? Into::sum : Into::nothing), kRows, kVectors>(
              a_ + i * depth, 1, kRows, b_ + j * depth, kColumns, depth, c.row(i) + j, c.ld);
        }
      }
    }
  }
  void scaled_tiles(std::int64_t rows, std::int64_t columns, std::int64_t depth, std::int64_t first, GemmSums c) {
    for (std::int64_t j = 0; j < columns; j += kColumns) {
      for (std::int64_t i = 0; i < rows; i += kRows) {
        const float *a = a_ + i * depth, *b = b_ + j * depth;
        for (std::int64_t k = 0; k < depth; k += kScaleBlock) {
          alignas(64) float block[kRows * kColumns];
          multiply_tile<Into::nothing, kRows, kVectors>(a + k * kRows, 1, kRows, b + k * kColumns, kColumns,
                                                        min(kScaleBlock, depth - k), block, kColumns);
          c.scales->add_tile<kRows, kColumns>(block, k / kScaleBlock, i, j, first + k > 0, c.row(i) + j, c.ld);
        }
      }
    }
  }
  template <bool kAccumulate>
  static void add_block(const float* block, float* sums, std::int64_t ld) {
    for (int r = 0; r < kRows; ++r) {
      for (int at = 0; at < kColumns; at += kLanes) {
        const Int32s x = hn::ConvertTo(Int32Tag(), load(block + r * kColumns + at));
        float* to = sums + r * ld + at;
        store(to_bits(kAccumulate ? hn::Add(to_int(load(to)), x) : x), to);
      }
    }
  }

  float *a_, *b_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
