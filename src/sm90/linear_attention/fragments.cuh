// src/sm90/linear_attention/fragments.cuh: tiles of 64 x 64 numbers in the registers of a warpgroup: moving 16-bit
// tiles to shared memory and back, and the causal mask of P. Used by every variant of linear attention on Hopper.
#pragma once

#include "base/host_device.hpp"
#include "sm90/linear_attention/cta.cuh"

namespace falchion::sm90 {

/// The address that this lane gives to stmatrix or ldmatrix for the first 16 columns of a tile. The tile has 64 rows of
/// 128 bytes in the swizzle of TMA and wgmma, 16 rows for each warp of a warpgroup. Lane i addresses row i % 8 of
/// matrix i / 8, all of them 8 x 8. Matrix 1 lies below matrix 0; matrices 2 and 3 lie to the right of these.
template <class Element>
FALCHION_DEVICE unsigned matrix_address(const Element* tile) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned row = threadIdx.x % 128 / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
  return cast_smem_ptr_to_uint(tile) + row * 128 + (lane / 16 ^ lane % 8) * 16;
}
/// Stores columns 16 j to 16 j + 15 of rounded accumulators.
template <class Element>
FALCHION_DEVICE void store_matrices(const std::uint32_t (&pairs)[4], Element* to, int j) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(matrix_address(to) ^ (32 * j)),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}
/// Loads the same columns into the layout of operand A of wgmma, which is also that of the accumulators.
template <class Element>
FALCHION_DEVICE void load_matrices(const Element* from, int j, std::uint32_t* pairs) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
               : "r"(matrix_address(from) ^ (32 * j))
               : "memory");
}
/// Stores 64 x 64 rounded accumulators of a warpgroup.
template <class Element, class Fragment>
FALCHION_DEVICE void stage(const Fragment& rounded, Element* to) {
  const auto pairs = recast<std::uint32_t>(rounded);  // (2 rows, columns / 8) of pairs
  CUTE_UNROLL
  for (int j = 0; j < 4; ++j)
    store_matrices({pairs(4 * j), pairs(4 * j + 1), pairs(4 * j + 2), pairs(4 * j + 3)}, to, j);
}

/// The causal mask of P (C, C) as bits, in the layout of a warpgroup's accumulators: 16 bits for each of two
/// neighbouring columns, all 1 where the row's token sees the column's. A token sees itself and those before it in the
/// order of the sweep.
using CausalBits = decltype(make_tensor<std::uint32_t>(Layout<_16>{}));
FALCHION_DEVICE CausalBits causal_bits(const ChunkRange& chunks) {
  CausalBits kept;
  const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  CUTE_UNROLL
  for (int i = 0; i < size(kept); ++i) {
    const int column = 8 * (i / 2) + static_cast<int>(threadIdx.x) % 4 * 2;
    const auto keep = [&](int c) { return chunks.step > 0 ? c <= row + 8 * (i % 2) : c >= row + 8 * (i % 2); };
    kept(i) = (keep(column) ? 0xffffu : 0u) | (keep(column + 1) ? 0xffff0000u : 0u);
  }
  return kept;
}

}  // namespace falchion::sm90
