// src/ladder/gemm/tensor_core.cuh: what steps 07 to 09 and branch_sliced_k.cu share: tiles in shared memory, and the
// product of a warp on mma.sync. These steps differ in how tiles get into shared memory, and in which tile of C a block
// has.
#pragma once

#include <cuda_bf16.h>

#include "base/host_device.hpp"
#include "ladder/gemm/async_copy.cuh"
#include "ladder/gemm/whole_rows.cuh"

namespace falchion::ladder::gemm::on_gpu {

using bf16 = __nv_bfloat16;

inline constexpr int kTileRows = 128, kTileColumns = 128, kTileDepth = 64;
inline constexpr int kWarpSide = 64;  // a warp has 64 x 64 elements of C
inline constexpr int kThreads = 32 * (kTileRows / kWarpSide) * (kTileColumns / kWarpSide);

/// Tiles of A and B. In each group of 8 rows piece p of row r lies at place p ^ (r % 8), so that the 8 pieces that
/// ldmatrix takes from 8 rows at a time lie in different banks.
struct Tiles {
  alignas(128) bf16 A[kTileRows][kTileDepth];
  alignas(128) bf16 B[kTileDepth][kTileColumns];

  template <int kColumns>
  static FALCHION_DEVICE auto* piece(bf16 (*tile)[kColumns], int row, int p) {
    return &tile[row][(p ^ row % 8) * 8];
  }
};

/// Copies the tiles at (i0, l0) of A and (l0, j0) of B, 16 bytes at a time, by copy(to, from, inside).
template <class Copy>
FALCHION_DEVICE void load(const Operands<bf16>& x, int i0, int j0, int l0, Tiles& to, const Copy& copy) {
  constexpr int kPiecesA = kTileDepth / 8, kPiecesB = kTileColumns / 8;
  const int thread = static_cast<int>(threadIdx.x);
  const int row_a = thread / kPiecesA, p_a = thread % kPiecesA, row_b = thread / kPiecesB, p_b = thread % kPiecesB;
  const bf16* const a = x.A[i0 + row_a] + l0 + p_a * 8;
  const bf16* const b = x.B[l0 + row_b] + j0 + p_b * 8;
  const bool in_a = l0 + p_a * 8 < x.k, in_b = j0 + p_b * 8 < x.n;
#pragma unroll
  for (int r = 0; r < kTileRows; r += kThreads / kPiecesA)
    copy(Tiles::piece(to.A, row_a + r, p_a), a + r * x.A.stride, in_a && i0 + row_a + r < x.m);
#pragma unroll
  for (int r = 0; r < kTileDepth; r += kThreads / kPiecesB)
    copy(Tiles::piece(to.B, row_b + r, p_b), b + r * x.B.stride, in_b && l0 + row_b + r < x.k);
}

/// 16 x 16 numbers as an operand: a lane holds 8 of them.
using Block = unsigned[4];

/// Loads a block whose rows lie in rows of shared memory. `from` is lane l's piece: of row l % 16, the left one for the
/// first 16 lanes.
FALCHION_DEVICE void load_block(Block& to, const bf16* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(from))
               : "memory");
}
FALCHION_DEVICE void load_block_transposed(Block& to, const bf16* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(from))
               : "memory");
}
/// c += a b for 16 x 8 sums over 16 products. b0 and b1 are half a block.
FALCHION_DEVICE void multiply_add(float (&c)[4], const Block& a, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// What a warp computes: 64 x 64 elements of C.
class WarpProduct {
 public:
  /// C += A B for these tiles, 16 columns of A at a time. The operands of the next 16 are fetched meanwhile.
  FALCHION_DEVICE void multiply_add(Tiles& tiles) {
    fetch(tiles, 0, 0);
#pragma unroll
    for (int l = 0; l < kTileDepth / 16; ++l) {
      if (l + 1 < kTileDepth / 16) fetch(tiles, l + 1, (l + 1) % 2);
#pragma unroll
      for (int r = 0; r < kBlocks; ++r)
#pragma unroll
        for (int c = 0; c < 2 * kBlocks; ++c)
          on_gpu::multiply_add(sum_[r][c], a_[l % 2][r], b_[l % 2][c / 2][c % 2 * 2], b_[l % 2][c / 2][c % 2 * 2 + 1]);
    }
  }
  /// A lane has two neighbours in a row, and two in the row 8 further down.
  FALCHION_DEVICE void store(const Operands<bf16>& x, int i0, int j0) const {
#pragma unroll
    for (int r = 0; r < 2 * kBlocks; ++r) {
      const int i = i0 + row_ + r * 8 + lane() / 4;
#pragma unroll
      for (int c = 0; c < 2 * kBlocks; ++c) {
        const int j = j0 + column_ + c * 8 + lane() % 4 * 2;
        const float* const pair = &sum_[r / 2][c][r % 2 * 2];
        if (i < x.m && j < x.n)
          *reinterpret_cast<__nv_bfloat162*>(&x.C[i][j]) = __floats2bfloat162_rn(pair[0], pair[1]);
      }
    }
  }

 private:
  static constexpr int kBlocks = kWarpSide / 16;
  static FALCHION_DEVICE int lane() { return static_cast<int>(threadIdx.x) % 32; }

  /// ldmatrix brings A as it lies, and B, whose columns lie across its rows, transposed.
  FALCHION_DEVICE void fetch(Tiles& tiles, int l, int to) {
    const int row = lane() % 16, half = lane() / 16;
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) load_block(a_[to][r], Tiles::piece(tiles.A, row_ + r * 16 + row, l * 2 + half));
#pragma unroll
    for (int c = 0; c < kBlocks; ++c)
      load_block_transposed(b_[to][c], Tiles::piece(tiles.B, l * 16 + row, column_ / 8 + c * 2 + half));
  }

  const int row_ = static_cast<int>(threadIdx.x) / 32 / (kTileColumns / kWarpSide) * kWarpSide;
  const int column_ = static_cast<int>(threadIdx.x) / 32 % (kTileColumns / kWarpSide) * kWarpSide;
  float sum_[kBlocks][2 * kBlocks][4] = {};
  Block a_[2][kBlocks], b_[2][kBlocks];
};

}  // namespace falchion::ladder::gemm::on_gpu
