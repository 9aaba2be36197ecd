// src/cpu/gemm/block_scales.hpp: scales of blocks of 128. The sum over a block of k is multiplied by the scale of its
// row of a and by that of its 128 rows of b, and added to the sums in f32.
#pragma once

#include "args/cpu_gemm_args.hpp"
#include "cpu/blocks/arena.hpp"
#include "cpu/blocks/elements.hpp"
#include "policy/scale_block.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// The types that have such scales.
template <class T>
inline constexpr bool kBlockScales = std::is_same_v<T, e4m3>;

/// The scales of an item for some blocks of k, side by side.
class BlockScales {
 public:
  /// Of up to so many rows and columns, over so much of k.
  BlockScales(const GemmArgs& a, Arena& arena, std::int64_t rows, std::int64_t columns, std::int64_t depth)
      : a_(a),
        most_rows_(rows),
        most_columns_(columns),
        of_rows_(arena.take<float>(a.block_scales ? rows * ceil_div(depth, kScaleBlock) : 0)),
        of_columns_(arena.take<float>(a.block_scales ? columns * ceil_div(depth, kScaleBlock) : 0)) {}

  /// From now on the item is rows [i, i + rows) of a and rows [j, j + columns) of b.
  void move_to(std::int64_t batch, std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns) {
    batch_ = batch;
    i_ = i;
    rows_ = rows;
    j_ = j;
    columns_ = columns;
  }
  /// Fetches those of k in [first, first + depth), which begins with a block.
  void fetch(std::int64_t first, std::int64_t depth) {
    for (std::int64_t block = 0; block < ceil_div(depth, kScaleBlock); ++block) {
      float *to_rows = of_rows_ + block * most_rows_, *to_columns = of_columns_ + block * most_columns_;
      const float *of_a = start(a_.scale_a, first / kScaleBlock + block),
                  *of_b = start(a_.scale_b, first / kScaleBlock + block);
      for (std::int64_t r = 0; r < rows_; ++r) to_rows[r] = of_a[(i_ + r) * a_.scale_a.stride[1]];
      for (std::int64_t c = 0; c < columns_; ++c) to_columns[c] = of_b[(j_ + c) / kScaleBlock * a_.scale_b.stride[1]];
    }
  }
  /// Of a block that was fetched, counted from the first one.
  const float* of_rows(std::int64_t block) const { return of_rows_ + block * most_rows_; }
  const float* of_columns(std::int64_t block) const { return of_columns_ + block * most_columns_; }

  /// to = or += s_a s_b sums of a register tile over a block that was fetched, from (i, j) of the item on.
  template <int kRows, int kColumns>
  FALCHION_INLINE void add_tile(const float* sums, std::int64_t block, std::int64_t i, std::int64_t j, bool accumulate,
                                float* to, std::int64_t ld) const {
    constexpr int kVectors = kColumns / kLanes;
    Floats of_column[kVectors];
    for (int u = 0; u < kVectors; ++u) of_column[u] = load(of_columns(block) + j + u * kLanes);
    const float* of_row = of_rows(block) + i;
    for (int r = 0; r < kRows; ++r, to += ld) {
      for (int u = 0; u < kVectors; ++u) {
        const Floats scale = hn::Mul(splat(of_row[r]), of_column[u]);
        const Floats x = load(sums + r * kColumns + u * kLanes), before = load(to + u * kLanes);
        store(accumulate ? hn::MulAdd(scale, x, before) : hn::Mul(scale, x), to + u * kLanes);
      }
    }
  }

 private:
  const float* start(const View& x, std::int64_t block) const {
    return static_cast<const float*>(x.data) + batch_ * x.stride[0] + block * x.stride[2];
  }

  const GemmArgs& a_;
  const std::int64_t most_rows_, most_columns_;
  float *of_rows_, *of_columns_;
  std::int64_t batch_ = 0, i_ = 0, rows_ = 0, j_ = 0, columns_ = 0;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
