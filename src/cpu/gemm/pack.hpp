// src/cpu/gemm/pack.hpp: packs an operand of a GEMM, with any strides, into panels of f32: the elements of one k side
// by side, as the register tile reads them.
#pragma once

#include "args/cpu_gemm_args.hpp"
#include "cpu/blocks/elements.hpp"
#include "cpu/blocks/transpose.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

/// Rows of a or b. k consists of k2 segments of k1 elements. Adjacent segments are merged into one.
template <class T>
struct GemmRows {
  using Bits = typename T::Bits;
  const Bits* data;
  std::int64_t row, k2, step, k1;  // strides of a row, a segment, an element; elements of a segment

  static GemmRows of(const View& x, std::int64_t batch, std::int64_t k, std::int64_t k1) {
    GemmRows out{static_cast<const Bits*>(x.data) + batch * x.stride[0], x.stride[1], x.stride[2], x.stride[3], k1};
    if (k1 == 1) return {out.data, out.row, 0, out.k2, max(k, 1)};
    if (out.k2 == k1 * out.step || k <= k1) return {out.data, out.row, 0, out.step, max(k, 1)};
    return out;
  }
  GemmRows from(std::int64_t first) const { return {data + first * row, row, k2, step, k1}; }
  /// Whether each row is contiguous.
  bool whole(std::int64_t k) const { return step == 1 && k <= k1; }

  /// Calls f(address of k in row 0, done, count) for each run of elements that are `step` apart.
  template <class F>
  FALCHION_INLINE void each_run(std::int64_t first, std::int64_t count, const F& f) const {
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t k = first + done, inner = k % k1, run = min(count - done, k1 - inner);
      f(data + k / k1 * k2 + inner * step, done, run);
      done += run;
    }
  }
  /// Elements [first, first + count) of row r as f32.
  FALCHION_INLINE void copy_row(std::int64_t r, std::int64_t first, std::int64_t count, float* out) const {
    each_run(first, count, [&](const Bits* from, std::int64_t done, std::int64_t run) {
      convert_row<T>(from + r * row, step, run, out + done);
    });
  }
};

/// Up to 16 rows of up to 16 elements as f32; the rest is 0.
template <class T>
FALCHION_INLINE void load_block(const typename T::Bits* from, std::int64_t row, std::int64_t rows, std::int64_t columns,
                                float* block) {
  for (std::int64_t r = 0; r < 16; ++r) {
    float* out = block + r * 16;
    std::int64_t c = 0;
    if (r < rows) {
      for (; c + kLanes <= columns; c += kLanes) store(T::load(from + r * row + c), out + c);
      for (; c < columns; ++c) out[c] = T::to_float(from[r * row + c]);
    }
    for (; c < 16; ++c) out[c] = 0;
  }
}

/// out[k * kWide + r] for kWide rows r; rows past `rows` are 0. If kWide is no multiple of 16, up to 15 floats behind
/// the panel are overwritten, so panels are packed in ascending order.
template <class T, int kWide>
void pack_panel(const GemmRows<T>& x, std::int64_t rows, std::int64_t first, std::int64_t depth, float* out) {
  using Bits = typename T::Bits;
  x.each_run(first, depth, [&](const Bits* from, std::int64_t done, std::int64_t run) {
    float* to = out + done * kWide;
    if (x.step != 1 || run == 1) {  // row after row of the panel; adjacent rows are contiguous
      for (std::int64_t k = 0; k < run; ++k, to += kWide) {
        convert_row<T>(from + k * x.step, x.row, rows, to);
        for (std::int64_t r = rows; r < kWide; ++r) to[r] = 0;
      }
      return;
    }
    for (std::int64_t k = 0; k < run; k += 16) {
      const std::int64_t columns = min(16, run - k);
      for (std::int64_t r = 0; r < kWide; r += 16) {
        alignas(64) float block[256];
        const Bits* at = from + r * x.row + k;
        float* corner = to + k * kWide + r;
        load_block<T>(at, x.row, rows - r, columns, block);
        if (FALCHION_AVX512 && columns == 16) {
          transpose_16x16(block, 16, corner, kWide);
          continue;
        }
        const std::int64_t width = min(16, kWide - r);
        for (std::int64_t j = 0; j < columns; ++j) {
          for (std::int64_t i = 0; i < width; ++i) corner[j * kWide + i] = block[i * 16 + j];
        }
      }
    }
  });
}

}  // namespace falchion::cpu::FALCHION_LEVEL
