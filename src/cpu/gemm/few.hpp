// src/cpu/gemm/few.hpp: a GEMM of few rows (decode). Reading b takes the time, so b is read once, in place, without
// packing: the lanes are along k.
#pragma once

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

/// sums[r * ld + c] = or += a (kA rows of f32, a_row apart) times b (kB rows), over depth.
template <class T, int kA, int kB>
FALCHION_INLINE void dots(const float* a, std::int64_t a_row, const typename T::Bits* b, std::int64_t b_row,
                          std::int64_t depth, bool first, float* sums, std::int64_t ld) {
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
  for (int r = 0; r < kA; ++r) {
    for (int c = 0; c < kB; ++c) {
      float sum = sum_of_lanes(acc[r][c]);
      for (std::int64_t rest = k; rest < depth; ++rest) sum += a[r * a_row + rest] * T::to_float(b[c * b_row + rest]);
      put_sum<T>(sum, first, sums + r * ld + c);
    }
  }
}

template <class T>
class FewGemm {
 public:
  using Scope = int;

  FewGemm(Arena& arena, std::int64_t rows, std::int64_t) : a_(arena.take<float>(rows * kFewDepth<T>)) {}

  void multiply(const GemmRows<T>& a, const GemmRows<T>& b, std::int64_t rows, std::int64_t columns, std::int64_t k,
                GemmSums c) {
    for (std::int64_t first = 0; first == 0 || first < k; first += kFewDepth<T>) {
      const std::int64_t depth = min(kFewDepth<T>, k - first);
      for (std::int64_t r = 0; r < rows; ++r) a.copy_row(r, first, depth, a_ + r * kFewDepth<T>);
      std::int64_t j = 0;
      for (; j + kFewB <= columns; j += kFewB) all_rows<kFewB>(b.from(j), rows, first, depth, c.data + j, c.ld);
      for (; j < columns; ++j) all_rows<1>(b.from(j), rows, first, depth, c.data + j, c.ld);
    }
  }

 private:
  template <int kB>
  void all_rows(const GemmRows<T>& b, std::int64_t rows, std::int64_t first, std::int64_t depth, float* sums,
                std::int64_t ld) {
    const auto some = [&](auto count, std::int64_t r) {
      dots<T, count.value, kB>(a_ + r * kFewDepth<T>, kFewDepth<T>, b.data + first, b.row, depth, first == 0,
                               sums + r * ld, ld);
    };
    std::int64_t r = 0;
    for (; r + kFewA <= rows; r += kFewA) some(std::integral_constant<int, kFewA>{}, r);
    for (; r < rows; ++r) some(std::integral_constant<int, 1>{}, r);
  }

  float* a_;
};

}  // namespace falchion::cpu::FALCHION_LEVEL
