// src/ladder/gemm/store_tile.cuh: C leaves through shared memory. A warpgroup rounds its tile, writes it there, and TMA
// stores it while the warpgroup goes on.
#pragma once

#include "base/host_device.hpp"
#include "ladder/gemm/roles.cuh"

namespace falchion::ladder::gemm::on_gpu {

/// Room for C's tile of a warpgroup, or for some columns of it: boxes of 64 rows and 64 columns, swizzled as those of
/// A.
template <int kBoxes>
struct Outgoing {
  alignas(1024) bf16 box[kBoxes][64 * 64];
};

/// Four 8 x 8 matrices, where ldmatrix with the same addresses would read them.
FALCHION_DEVICE void store_matrices(bf16* to, const __nv_bfloat162 (&pair)[4]) {
  const auto* const word = reinterpret_cast<const unsigned*>(pair);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(cast_smem_ptr_to_uint(to)),
               "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}

/// Stores C's tile at (i0, j0), kBoxes boxes at a time. barrier is a named barrier of this warpgroup.
template <class Tile, int kBoxes>
FALCHION_DEVICE void store_tile(const TileProduct<Tile>& product, Outgoing<kBoxes>& out, const CUtensorMap& map, int i0,
                                int j0, int barrier) {
  constexpr int kAcross = Tile::kColumns / 64;
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane % 16;
  const bool leader = threadIdx.x % 128 == 0;
  CUTE_UNROLL
  for (int first = 0; first < TileProduct<Tile>::kHeight * kAcross; first += kBoxes) {
    if (leader) tma_store_wait<0>();  // TMA has read what was here before
    sm90::sync_threads<128>(barrier);
    CUTE_UNROLL
    for (int box = 0; box < kBoxes; ++box) {
      const int part = (first + box) / kAcross, column = (first + box) % kAcross * 64;
      CUTE_UNROLL
      for (int piece = 0; piece < 8; piece += 2) {
        const int group = column / 8 + piece;
        const __nv_bfloat162 pair[4] = {product.pair(part * 2, group), product.pair(part * 2 + 1, group),
                                        product.pair(part * 2, group + 1), product.pair(part * 2 + 1, group + 1)};
        store_matrices(&out.box[box][row * 64 + ((piece + lane / 16) ^ row % 8) * 8], pair);
      }
    }
    sm90::publish_to_async();
    sm90::sync_threads<128>(barrier);
    if (leader) {
      CUTE_UNROLL
      for (int box = 0; box < kBoxes; ++box)
        SM90_TMA_STORE_4D::copy(&map, out.box[box], j0 + (first + box) % kAcross * 64, 0,
                                i0 + product.box_row((first + box) / kAcross), 0);
      tma_store_arrive();
    }
  }
}

}  // namespace falchion::ladder::gemm::on_gpu
