// src/gpu/blocks/async.cuh: cp.async, which copies from global to shared memory asynchronously.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/host_device.hpp"

namespace falchion::gpu {

/// Starts a copy of 16 bytes: reads the first `bytes` of them and fills the rest with 0.
FALCHION_DEVICE void copy_chunk_async(const void* from, std::uint32_t to, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(bytes) : "memory");
}
/// The same for 4 bytes.
FALCHION_DEVICE void copy_word_async(const void* from, std::uint32_t to, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

}  // namespace falchion::gpu
