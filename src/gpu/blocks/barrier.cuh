// src/gpu/blocks/barrier.cuh: a split barrier of warps in shared memory: a warp arrives, continues with independent
// work, and waits for the other warps later.
#pragma once

#include <cstdint>

#include <cute/arch/util.hpp>

#include "base/host_device.hpp"

namespace falchion::gpu {

/// Each use is a phase; waits name the parity of the phase: 0, 1, 0, ...
struct SplitBarrier {
  std::uint64_t bits;

  FALCHION_DEVICE void init(int warps) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(warps) : "memory");
  }
  /// All lanes of a warp call it. Their earlier writes to shared memory are visible to warps that have waited.
  FALCHION_DEVICE void arrive() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      asm volatile(
          "{\n"
          ".reg .b64 state;\n"
          "mbarrier.arrive.shared.b64 state, [%0];\n"
          "}\n" ::"r"(address())
          : "memory");
    }
  }
  /// Waits until all warps have arrived in the phase of this parity.
  FALCHION_DEVICE void wait(int parity) const {
    std::uint32_t done;
    do {
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
          "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
#else
          "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
#endif
          "selp.u32 %0, 1, 0, p;\n"
          "}\n"
          : "=r"(done)
          : "r"(address()), "r"(parity)
          : "memory");
    } while (done == 0);
  }

 private:
  FALCHION_DEVICE std::uint32_t address() const { return cute::cast_smem_ptr_to_uint(this); }
};

}  // namespace falchion::gpu
