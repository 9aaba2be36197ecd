// src/sm80/gemm/fma_load.cuh: loads blocks of k of an f32 operand to shared memory. There each k has a line with the
// numbers of all rows, so that a thread reads four rows at a time. A line has four floats of padding, so that the 32
// numbers which a warp stores at a time, 8 of k of 4 rows, go to 32 banks.
#pragma once

#include "base/host_device.hpp"
#include "sm80/gemm/load.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Loads a tile of kRows rows, with a specialisation for each layout of the operand.
template <class Config, int kRows, Major kMajor>
class FmaLoader;

/// One number at a time, which transposes the tile: 8 threads load 8 neighbours in k. Rows outside of the matrix are
/// not copied: stale data then reach only the sums of these rows, which are never stored.
template <class Config, int kRows>
class FmaLoader<Config, kRows, Major::k> {
 public:
  explicit FALCHION_DEVICE FmaLoader(const GemmOperand<Config>& x) : x_(x), from_(x.data + x.offset(row0())) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) rows_ |= x.has(row0() + i * kStep) ? 1u << i : 0;
  }
  FALCHION_DEVICE void start(std::uint32_t to, std::uint32_t k0) const {
    to += (threadIdx.x % 8 * (kRows + 4) + row0()) * 4;
    const std::uint32_t k = k0 + threadIdx.x % 8;
    if (x_.k1 >= x_.k_end) {
#pragma unroll
      for (int along = 0; along < Config::kDepth; along += 8) move(from_ + k + along, to, k, along);
    } else {
#pragma unroll 1
      for (int along = 0; along < Config::kDepth; along += 8)
        move(from_ + x_.template offset_of_k<true>(k + along), to, k, along);
    }
  }

 private:
  static constexpr int kStep = Config::kThreads / 8, kCount = kRows / kStep, kBits = 3;
  static_assert(kCount <= 1 << kBits);
  static FALCHION_DEVICE int row0() { return threadIdx.x / 8; }

  FALCHION_DEVICE void move(const float* from, std::uint32_t to, std::uint32_t k, int along) const {
    const int bytes = k + along < x_.k_end ? 4 : 0;
    std::int64_t to_row[kBits];  // from a row of this thread to the one kStep << bit further down
#pragma unroll
    for (int bit = 0; bit < kBits; ++bit) to_row[bit] = x_.offset(kStep << bit);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      std::int64_t offset = 0;
#pragma unroll
      for (int bit = 0; bit < kBits; ++bit) offset += (i >> bit & 1) != 0 ? to_row[bit] : 0;
      if ((rows_ >> i & 1) != 0) copy_word_async(from + offset, to + (along * (kRows + 4) + i * kStep) * 4, bytes);
    }
  }

  const GemmOperand<Config> x_;
  const float* from_;
  unsigned rows_ = 0;
};

/// Four rows at a time.
template <class Config, int kRows>
class FmaLoader<Config, kRows, Major::rows> {
 public:
  explicit FALCHION_DEVICE FmaLoader(const GemmOperand<Config>& x) : x_(x), from_(x.data + x.offset(row())) {
    const std::int64_t rest = x.left - x.row_of(row());
    bytes_ = rest >= 4 ? 16 : rest > 0 ? static_cast<int>(rest) * 4 : 0;
  }
  FALCHION_DEVICE void start(std::uint32_t to, std::uint32_t k0) const {
    if (kLines > Config::kDepth && line() >= Config::kDepth) return;
    to += (line() * (kRows + 4) + row()) * 4;
    const std::uint32_t k = k0 + line();
    const float* from = from_ + x_.offset_of_k(k);
    const bool one_axis = x_.k1 >= x_.k_end;
#pragma unroll
    for (int i = 0; i < Config::kDepth; i += kLines) {
      if (i > 0) from = one_axis ? from + kLines * x_.of_k1 : from_ + x_.offset_of_k(k + i);
      copy_chunk_async(from, to + i * (kRows + 4) * 4, k + i < x_.k_end ? bytes_ : 0);
    }
  }

 private:
  static constexpr int kAcross = kRows / 4, kLines = Config::kThreads / kAcross;
  static FALCHION_DEVICE int row() { return threadIdx.x % kAcross * 4; }
  static FALCHION_DEVICE int line() { return threadIdx.x / kAcross; }

  const GemmOperand<Config> x_;
  const float* from_;
  int bytes_;
};

/// One number at a time, for any strides. Neighbouring threads load neighbouring rows if these are closer together than
/// k.
template <class Config, int kRows>
requires(sizeof(typename Config::Element) == 4) class FmaLoader<Config, kRows, Major::neither> {
 public:
  explicit FALCHION_DEVICE FmaLoader(const GemmOperand<Config>& x)
      : x_(x), by_rows_(magnitude(x.stride) < magnitude(x.of_k1)) {}
  FALCHION_DEVICE void start(std::uint32_t to, std::uint32_t k0) const {
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < kRows * Config::kDepth; i += Config::kThreads) {
      const int row = by_rows_ ? i % kRows : i / 8 % kRows, line = by_rows_ ? i / kRows : i / (8 * kRows) * 8 + i % 8;
      const std::uint32_t k = k0 + line;
      const bool inside = k < x_.k_end && x_.has(row);
      copy_word_async(inside ? x_.data + x_.offset(row) + x_.offset_of_k(k) : x_.data,
                      to + (line * (kRows + 4) + row) * 4, inside ? 4 : 0);
    }
  }

 private:
  static FALCHION_DEVICE std::int64_t magnitude(std::int64_t x) { return x < 0 ? -x : x; }

  const GemmOperand<Config> x_;
  const bool by_rows_;
};

}  // namespace falchion::sm80
