// src/sm80/gemm_fma.cuh: the sums of a tile of D in f32, by multiply-adds.
#pragma once

#include "sm80/gemm_load.cuh"

namespace falchion::sm80 {

/// Eight warps have 32 x 64 sums each, and a thread has 8 x 8 of them: rows 4 apart and columns 8 apart, so that the 8
/// rows of B that a phase of 16-byte loads reads lie in different banks, and of A it reads one row.
template <class Config>
class FmaSums {
 public:
  template <Major kMajorA, Major kMajorB>
  __device__ __forceinline__ void add(GemmLoads<Config, kMajorA, kMajorB>& loads, std::uint32_t shared, int blocks) {
    const std::uint32_t from_a = shared + row0() * 128, from_b = shared + Config::kOperandBytes + column0() * 128;
#pragma unroll
    for (int i = 0; i < Config::kStages - 1; ++i) loads.start_next();
    std::uint32_t stage = 0;
#pragma unroll 1
    for (int n = 0; n < blocks; ++n) {
      cute::cp_async_wait<Config::kStages - 2>();
      __syncthreads();     // this block is there, and no thread reads the one before it any more
      loads.start_next();  // where that was
#pragma unroll 1
      for (int chunk = 0; chunk < 8; ++chunk) add_chunk(from_a + stage, from_b + stage, chunk);
      stage = stage + Config::kStageBytes == Config::kSharedBytes ? 0 : stage + Config::kStageBytes;
    }
    cute::cp_async_wait<0>();
  }

  /// Writes the sums to rows of kPitch floats.
  __device__ __forceinline__ void put(float* to) const {
    to += row0() * Config::kPitch + column0();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) to[4 * i * Config::kPitch + 8 * j] = sums_[i][j];
    }
  }

 private:
  static_assert(Config::kThreads == 256 && Config::kChunk == 4);
  static __device__ __forceinline__ int row0() {
    return static_cast<int>(threadIdx.x) / 32 % 4 * 32 + static_cast<int>(threadIdx.x) % 32 / 8;
  }
  static __device__ __forceinline__ int column0() {
    return static_cast<int>(threadIdx.x) / 128 * 64 + static_cast<int>(threadIdx.x) % 8;
  }
  static __device__ __forceinline__ float4 load(std::uint32_t address) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address));
    return x;
  }

  /// Four of k.
  __device__ __forceinline__ void add_chunk(std::uint32_t from_a, std::uint32_t from_b, int chunk) {
    float4 a[8];
    // Row i of this thread is row0 + 4 i of the tile, so its chunk is moved by (row0 + 4 i) % 8.
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i] = load(from_a + i * 4 * 128 + (chunk ^ (row0() + 4 * i) % 8) * 16);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float4 b = load(from_b + j * 8 * 128 + (chunk ^ column0() % 8) * 16);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums_[i][j] = fmaf(a[i].x, b.x, sums_[i][j]);
        sums_[i][j] = fmaf(a[i].y, b.y, sums_[i][j]);
        sums_[i][j] = fmaf(a[i].z, b.z, sums_[i][j]);
        sums_[i][j] = fmaf(a[i].w, b.w, sums_[i][j]);
      }
    }
  }

  float sums_[8][8] = {};
};

}  // namespace falchion::sm80
