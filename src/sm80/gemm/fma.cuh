// src/sm80/gemm/fma.cuh: the sums of a tile of D in f32, and of e4m3, by multiply-adds, and those of i8 by dp4a, which
// adds four products. docs/ladder.md derives it (step 06).
#pragma once

#include <type_traits>

#include "base/host_device.hpp"
#include "sm80/gemm/fma_load.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// A thread has 8 x 8 sums, or 4 x 4 where A has few rows, and a warp has those of 4 x 8 threads. So a warp reads 96
/// numbers for 2048 multiply-adds, or 48 for 512.
template <class Config>
class FmaSums {
 public:
  template <Major kMajorA, Major kMajorB>
  using Loads =
      GemmLoads<Config, FmaLoader<Config, Config::kRows, kMajorA>, FmaLoader<Config, Config::kColumns, kMajorB>>;

  /// Adds the blocks of k from `loads`: sums += A B^T. Operands are read one product ahead.
  template <Major kMajorA, Major kMajorB>
  FALCHION_DEVICE void add(Loads<kMajorA, kMajorB>& loads, const unsigned char* memory, int blocks) {
#pragma unroll
    for (int i = 0; i < Config::kStages - 1; ++i) loads.start_next();
    int stage = 0;
#pragma unroll 1
    for (int n = 0; n < blocks; ++n) {
      cute::cp_async_wait<Config::kStages - 2>();
      __syncthreads();            // this block has arrived, and no thread still reads the previous one
      loads.start_next();         // into the stage of the previous block
      add_block(memory + stage);  // sums += A B^T
      stage = stage + Config::kStageBytes == Config::kSharedBytes ? 0 : stage + Config::kStageBytes;
    }
    cute::cp_async_wait<0>();
  }

  /// Writes the sums to rows of kPitch floats.
  FALCHION_DEVICE void put(float* to) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
#pragma unroll
      for (int j = 0; j < kOwn; j += 4)
        *reinterpret_cast<float4*>(to + (row0() + i % 4 + i / 4 * 16) * Config::kPitch + column0() + j * 8) =
            make_float4(bits(sums_[i][j]), bits(sums_[i][j + 1]), bits(sums_[i][j + 2]), bits(sums_[i][j + 3]));
  }

 private:
  using Sum = typename Config::Sum;  // and what a word holds: a number, or four of i8
  static constexpr int kOwn = Config::kRows < 128 ? 4 : 8;
  static constexpr int kWarpsAcross = Config::kColumns / (8 * kOwn);
  static_assert(Config::kThreads == 32 * kWarpsAcross * (Config::kRows / (4 * kOwn)));
  static FALCHION_DEVICE int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static FALCHION_DEVICE int warp() { return static_cast<int>(threadIdx.x) / 32; }
  // Lanes with neighbouring numbers share a row, and lanes two apart share a column. A thread has 4 neighbouring rows
  // or columns, and 4 more behind those of the other lanes.
  static FALCHION_DEVICE int row0() {
    return warp() / kWarpsAcross * (4 * kOwn) + (lane() / 16 * 2 + lane() / 2 % 2) * 4;
  }
  static FALCHION_DEVICE int column0() {
    return warp() % kWarpsAcross * (8 * kOwn) + (lane() / 4 % 4 * 2 + lane() % 2) * 4;
  }

  static FALCHION_DEVICE float bits(float x) { return x; }
  static FALCHION_DEVICE float bits(std::int32_t x) { return __int_as_float(x); }
  static FALCHION_DEVICE float multiply_add(float a, float b, float sum) { return fmaf(a, b, sum); }
  static FALCHION_DEVICE std::int32_t multiply_add(std::int32_t a, std::int32_t b, std::int32_t sum) {
    return __dp4a(a, b, sum);
  }

  using FourWords = std::conditional_t<std::is_same_v<Sum, float>, float4, int4>;
  template <int kAcross>
  static FALCHION_DEVICE void fetch(const Sum* from, Sum (&to)[kOwn]) {
#pragma unroll
    for (int e = 0; e < kOwn; e += 4)
      *reinterpret_cast<FourWords*>(to + e) = *reinterpret_cast<const FourWords*>(from + e * kAcross);
  }

  FALCHION_DEVICE void add_block(const unsigned char* stage) {
    const Sum* const from_a = reinterpret_cast<const Sum*>(stage) + row0();
    const Sum* const from_b = reinterpret_cast<const Sum*>(stage + Config::kBytesA) + column0();
    Sum a[2][kOwn], b[2][kOwn];
    const auto fetch_both = [&](int k) {
      fetch<4>(from_a + k * (Config::kRows + 4), a[k % 2]);
      fetch<8>(from_b + k * (Config::kColumns + 4), b[k % 2]);
    };
    fetch_both(0);
#pragma unroll
    for (int k = 0; k < Config::kLines; ++k) {
      if (k + 1 < Config::kLines) fetch_both(k + 1);
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int j = 0; j < kOwn; ++j) sums_[i][j] = multiply_add(a[k % 2][i], b[k % 2][j], sums_[i][j]);
    }
  }

  alignas(16) Sum sums_[kOwn][kOwn] = {};
};

}  // namespace falchion::sm80
