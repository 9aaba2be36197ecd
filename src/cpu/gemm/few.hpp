// src/cpu/gemm/few.hpp: a GEMM of few rows (decode). Reading b takes the time, so b is read once, in place, without
// packing: the lanes are along k.
#pragma once

#include "cpu/blocks/sum_lanes.hpp"
#include "cpu/gemm/store.hpp"

namespace falchion::cpu::FALCHION_LEVEL {

inline constexpr int kFewRows = 16;
// Rows of a and of b whose products are summed side by side: 16 sums on AVX-512 and NEON, 8 on AVX2.
inline constexpr int kFewA = 4, kFewB = kLanes == 8 ? 2 : 4;
// How much of k is read at a time: of a row of b this is 4 to 16 KB, and of 16 rows of a, in f32, 256 KB. In i8 it is
// so little that the sum of the products, of up to 2^14 each, is at most 2^24, which f32 holds exactly.
template <class T>
inline constexpr std::int64_t kFewDepth = kExactSums<T> ? 1024 : 4096;

/// *to = or += sum.
template <class T>
FALCHION_INLINE void put_sum(float sum, bool first, float* to) {
  if constexpr (kExactSums<T>) {
    std::int32_t before = 0;
    if (!first) std::memcpy(&before, to, sizeof before);
    before += static_cast<std::int32_t>(sum);
    std::memcpy(to, &before, sizeof before);
  } else {
    *to = first ? sum : *to + sum;
  }
}

/// out[i] is the sum of the lanes of x[i].
template <int kCount>
FALCHION_INLINE void sums_of_lanes(const Floats* x, float* out) {
  constexpr int kFours = kCount / 4 * 4;
#pragma GCC unroll 4
  for (int i = 0; i < kFours; i += 4) sum_lanes_of_4({x[i], x[i + 1], x[i + 2], x[i + 3]}, out + i);
  for (int i = kFours; i < kCount; ++i) out[i] = sum_of_lanes(x[i]);
}

/// Calls put(r, c, sum) with the sum of row r of a (kA rows of f32, a_row apart) times row c of b (kB rows), over
/// depth.
template <class T, int kA, int kB, class Put>
FALCHION_INLINE void dots(const float* a, std::int64_t a_row, const typename T::Bits* b, std::int64_t b_row,
                          std::int64_t depth, const Put& put) {
  Floats acc[kA][kB];
#pragma GCC unroll 4
  for (int r = 0; r < kA; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kB; ++c) acc[r][c] = splat(0.f);
  }
  std::int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    Floats y[kB];
#pragma GCC unroll 4
    for (int c = 0; c < kB; ++c) y[c] = T::load(b + c * b_row + k);
#pragma GCC unroll 4
    for (int r = 0; r < kA; ++r) {
      const Floats x = load(a + r * a_row + k);
#pragma GCC unroll 4
      for (int c = 0; c < kB; ++c) acc[r][c] = hn::MulAdd(x, y[c], acc[r][c]);
    }
  }
  alignas(64) float sums[kA * kB];
  sums_of_lanes<kA * kB>(&acc[0][0], sums);
  for (int r = 0; r < kA; ++r) {
    for (int c = 0; c < kB; ++c) {
      float sum = sums[r * kB + c];
      for (std::int64_t rest = k; rest < depth; ++rest) sum += a[r * a_row + rest] * T::to_float(b[c * b_row + rest]);
      put(r, c, sum);
    }
  }
}

template <class T>
class FewGemm {
 public:
  using Scope = int;
  static constexpr std::int64_t kDepth = kFewDepth<T>;

  FewGemm(Arena& arena, std::int64_t rows, std::int64_t) : a_(arena.take<float>(rows * kDepth)) {}

  void multiply(const GemmRows<T>& a, const GemmRows<T>& b, std::int64_t rows, std::int64_t columns, std::int64_t k,
                GemmSums c) {
    for (std::int64_t first = 0; first == 0 || first < k; first += kDepth) {
      const std::int64_t depth = min(kDepth, k - first);
      for (std::int64_t r = 0; r < rows; ++r) a.copy_row(r, first, depth, a_ + r * kDepth);
      if (kBlockScales<T> && c.scales != nullptr) c.scales->fetch(first, depth);
      std::int64_t j = 0;
      for (; j + kFewB <= columns; j += kFewB) all_rows<kFewB>(b.from(j), rows, first, depth, j, c);
      for (; j < columns; ++j) all_rows<1>(b.from(j), rows, first, depth, j, c);
    }
  }

 private:
  template <int kB>
  void all_rows(const GemmRows<T>& b, std::int64_t rows, std::int64_t first, std::int64_t depth, std::int64_t j,
                const GemmSums& c) {
    std::int64_t r = 0;
    for (; r + kFewA <= rows; r += kFewA) some_rows<kFewA, kB>(b, r, first, depth, j, c);
    for (; r < rows; ++r) some_rows<1, kB>(b, r, first, depth, j, c);
  }
  /// The sums of kA rows, from r on, and kB columns, from j on.
  template <int kA, int kB>
  FALCHION_INLINE void some_rows(const GemmRows<T>& b, std::int64_t r, std::int64_t first, std::int64_t depth,
                                 std::int64_t j, const GemmSums& c) {
    const float* a = a_ + r * kDepth;
    const auto* of_b = b.data + first;
    if (kBlockScales<T> && c.scales != nullptr) {
      for (std::int64_t at = 0; at < depth; at += kScaleBlock) {
        const float *of_rows = c.scales->of_rows(at / kScaleBlock) + r,
                    *of_columns = c.scales->of_columns(at / kScaleBlock) + j;
        dots<T, kA, kB>(
            a + at, kDepth, of_b + at, b.row, min(kScaleBlock, depth - at), [&](int row, int column, float sum) {
              put_sum<T>(of_rows[row] * of_columns[column] * sum, first + at == 0, c.row(r + row) + j + column);
            });
      }
      return;
    }
    dots<T, kA, kB>(a, kDepth, of_b, b.row, depth,
                    [&](int row, int column, float sum) { put_sum<T>(sum, first == 0, c.row(r + row) + j + column); });
  }

  float* a_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
