// src/ladder/gemm/multistage.cuh: one tile of C by one block of threads, with the next tiles of A and B on their way.
// Steps 08 and 09 share it.
#pragma once

#include "base/host_device.hpp"
#include "ladder/gemm/tensor_core.cuh"

namespace falchion::ladder::gemm::on_gpu {

// Three were slower on an H100, 364 TFLOP/s for 387 at 4096 x 4096 x 4096. Two blocks share a multiprocessor, so two
// pairs of tiles are on their way to it.
inline constexpr int kStages = 2;

/// C's tile at (i0, j0). `stages` is a ring: while one is multiplied, the copies to the others are on their way.
FALCHION_DEVICE void multiply_tile(const Operands<bf16>& x, int i0, int j0, Tiles (&stages)[kStages]) {
  const auto start_load = [&](int l0, int stage) {
    load(x, i0, j0, l0, stages[stage], copy_async_16);
    commit_copies();
  };
  WarpProduct product;
  for (int s = 0; s < kStages - 1; ++s) start_load(s * kTileDepth, s);
  for (int l0 = 0, now = 0, free = kStages - 1; l0 < x.k; l0 += kTileDepth) {
    wait_copies<kStages - 2>();  // these tiles have arrived
    __syncthreads();             // and no thread still reads the previous ones
    start_load(l0 + (kStages - 1) * kTileDepth, free);
    product.multiply_add(stages[now]);
    free = now;
    now = now + 1 < kStages ? now + 1 : 0;
  }
  product.store(x, i0, j0);
}

}  // namespace falchion::ladder::gemm::on_gpu
