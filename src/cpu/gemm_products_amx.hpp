// src/cpu/gemm_products_amx.hpp: C = A B^T of one work item in bf16, on AMX tiles. The sums are f32.
#pragma once

#include "blocks/amx_pack.hpp"
#include "cpu/gemm_products.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Rows of an operand for pack_tile(), whatever their strides: 32 elements of row i of the tile at (row, col).
struct GemmTileSource {
  GemmRows<bf16> x;
  std::int64_t first;  // of k
  template <Order kOrder, bool kWhole>
  FALCHION_INLINE __mmask32 load(std::int64_t row, std::int64_t col, int i, std::int64_t rows, std::int64_t cols,
                                 __m512i (&part)[1]) const {
    static_assert(!down(kOrder));
    alignas(64) std::uint16_t word[32] = {};
    const std::int64_t count = row + i < rows ? min(32, cols - col) : 0;
    x.each_run(first + col, count, [&](const std::uint16_t* from, std::int64_t done, std::int64_t run) {
      for (std::int64_t k = 0; k < run; ++k) word[done + k] = from[(row + i) * x.row + k * x.step];
    });
    part[0] = _mm512_load_si512(word);
    return 0;
  }
};

class AmxGemm {
 public:
  using Scope = TileScope;
  static constexpr int kRows = 32, kColumns = 32, kBlockDepth = 256;  // of tiles that are summed side by side; of k
  /// b is turned while it is packed, which costs more than packing a, so an item has more rows than columns. Its sums
  /// are 768 KB, and with them the packed operands of kBlockDepth stay in an L2 of 2 MB.
  static constexpr GemmTile tile(int few_rows) { return {kRows, kColumns, 768, 256, kBlockDepth, few_rows}; }

  AmxGemm(Arena& arena, std::int64_t rows, std::int64_t columns)
      : a_(arena.take<std::byte>(round_up(rows, kRows) * kBlockDepth * 2)),
        b_(arena.take<std::byte>(round_up(columns, kColumns) * kBlockDepth * 2)) {}

  void multiply(const GemmRows<bf16>& a, const GemmRows<bf16>& b, std::int64_t rows, std::int64_t columns,
                std::int64_t k, GemmSums c) {
    for (std::int64_t first = 0; first == 0 || first < k; first += kBlockDepth) {
      const std::int64_t depth = min(kBlockDepth, k - first);
      pack<Order::kRows>(a, k, rows, first, depth, a_);
      pack<Order::kTurnedRows>(b, k, columns, first, depth, b_);
      tiles(rows, columns, ceil_div(depth, 32), first == 0, c);
    }
  }

 private:
  template <Order kOrder>
  static void pack(const GemmRows<bf16>& x, std::int64_t k, std::int64_t count, std::int64_t first, std::int64_t depth,
                   std::byte* out) {
    if (x.whole(k)) {
      pack_from<kOrder>(InPlaceSource<false>{x.data + first, x.row}, count, depth, out);
    } else {
      pack_from<kOrder>(GemmTileSource{x, first}, count, depth, out);
    }
  }
  template <Order kOrder, class Source>
  static void pack_from(const Source& source, std::int64_t count, std::int64_t depth, std::byte* out) {
    const Tiles<1> tiles{out, ceil_div(depth, 32)};
    for (std::int64_t r = 0; r < round_up(count, kRows); r += 16) {
      for (std::int64_t s = 0; s < tiles.slices; ++s)
        pack_tile<1, kOrder>(source, r, s * 32, count, depth, tiles.from(r).slice(s), tiles.part());
    }
  }
  void tiles(std::int64_t rows, std::int64_t columns, std::int64_t slices, bool first, GemmSums c) const {
    const Tiles<1> a{a_, slices}, b{b_, slices};
    for (std::int64_t j = 0; j < columns; j += kColumns) {
      for (std::int64_t i = 0; i < rows; i += kRows) {
        float* sums = c.row(i) + j;
        first ? tile_zero_2x2() : tile_load_2x2(sums, c.ld);
        for (std::int64_t s = 0; s < slices; ++s)
          tile_dot_2x2(a.from(i).slice(s), 64, a.row(), b.from(j).slice(s), b.row());
        tile_store_2x2(sums, c.ld);
      }
    }
  }

  std::byte *a_, *b_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
