// src/sm80/gemm/mma.cuh: the sums of a tile of D in 16-bit types, on mma.sync.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/mma.cuh"
#include "sm80/gemm/load.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Four warps have 64 x 64 sums each: then the 4 KB of operands that a warp reads from shared memory for 16 of k take
/// 32 cycles of the SM, less than its products.
template <class Config>
class MmaSums {
 public:
  using Element = typename Config::Element;
  template <Major kMajorA, Major kMajorB>
  using Loads = GemmLoads<Config, GemmLoader<Config, kMajorA>, GemmLoader<Config, kMajorB>>;

  /// Adds the blocks of k from `loads`: sums += A B^T. The operands of a step are read from shared memory one step
  /// ahead, across blocks too.
  template <Major kMajorA, Major kMajorB>
  FALCHION_DEVICE void add(Loads<kMajorA, kMajorB>& loads, const unsigned char* memory, int blocks) {
    const std::uint32_t shared = cute::cast_smem_ptr_to_uint(memory);
    constexpr bool kAcrossA = kMajorA == Major::rows, kAcrossB = kMajorB == Major::rows;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    constexpr auto kPlace = [](bool across, bool a, int lane) {
      return across == a ? LaneBlocks::across_first(lane) : LaneBlocks::down_first(lane);
    };
    const LaneBlocks from_a = warp_blocks<kAcrossA>({kPlace(kAcrossA, true, lane)}, row0());
    const LaneBlocks from_b = warp_blocks<kAcrossB>({kPlace(kAcrossB, false, lane)}, column0());
    Block a[2][4], b[2];
    std::uint32_t stage = shared;
    const auto load_a = [&](int step) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        load_operand<kAcrossA>(stage + operand_at<kAcrossA>(from_a, i, step % kSteps), a[step % 2][i]);
    };
    const auto load_b = [&](int step, int j) {
      load_operand<kAcrossB>(stage + Config::kBytesA + operand_at<kAcrossB>(from_b, j, step % kSteps), b[j % 2]);
    };

#pragma unroll
    for (int i = 0; i < Config::kStages - 1; ++i) loads.start_next();
    cute::cp_async_wait<Config::kStages - 2>();
    __syncthreads();
    load_a(0);
    load_b(0, 0);
#pragma unroll 1
    for (int n = 0; n < blocks; ++n) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (j < 3) load_b(step, j + 1);
          if (j == 2) {
            if (step == kSteps - 1) {
              cute::cp_async_wait<Config::kStages - 2>();
              __syncthreads();  // the next block has arrived, and no thread still reads this one
              stage =
                  stage + Config::kStageBytes == shared + Config::kSharedBytes ? shared : stage + Config::kStageBytes;
            }
            load_a(step + 1);
          }
          if (j == 3) load_b(step + 1, 0);
          if (step == 0 && j == 0) loads.start_next();  // into the stage of the previous block
#pragma unroll
          for (int i = 0; i < 4; ++i) {  // sums += A B^T
            multiply_add<Element>(sums_[i][2 * j], a[step % 2][i], b[j % 2][0], b[j % 2][1]);
            multiply_add<Element>(sums_[i][2 * j + 1], a[step % 2][i], b[j % 2][2], b[j % 2][3]);
          }
        }
      }
    }
    cute::cp_async_wait<0>();
  }

  /// Writes the sums to rows of kPitch floats.
  FALCHION_DEVICE void put(float* to) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    to += (row0() + lane / 4) * Config::kPitch + column0() + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const Sums& sums = sums_[i / 2][j];
        *reinterpret_cast<float2*>(to + i * 8 * Config::kPitch + j * 8) =
            i % 2 == 0 ? make_float2(sums[0], sums[1]) : make_float2(sums[2], sums[3]);
      }
    }
  }

 private:
  static constexpr int kSteps = Config::kDepth / 16;
  static_assert(Config::kThreads == 128 && kSteps % 2 == 0);
  static FALCHION_DEVICE int row0() { return static_cast<int>(threadIdx.x) / 32 % 2 * 64; }
  static FALCHION_DEVICE int column0() { return static_cast<int>(threadIdx.x) / 64 * 64; }

  template <bool kAcross>
  static FALCHION_DEVICE LaneBlocks warp_blocks(LaneBlocks first, int row) {
    return kAcross ? first.from<Config::kDepth>(0, row) : first.from<128>(row, 0);
  }
  template <bool kAcross>
  static FALCHION_DEVICE std::uint32_t operand_at(const LaneBlocks& from, int i, int step) {
    return kAcross ? from.at<Config::kDepth>(16 * step, 16 * i) : from.at<128>(16 * i, 16 * step);
  }
  template <bool kAcross>
  static FALCHION_DEVICE void load_operand(std::uint32_t address, Block& to) {
    kAcross ? load_block_transposed(address, to) : load_block(address, to);
  }

  Sums sums_[4][8] = {};
};

}  // namespace falchion::sm80
