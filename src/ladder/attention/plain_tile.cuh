// src/ladder/attention/plain_tile.cuh: what steps 02 and 03 on the GPU share: f32 tiles in shared memory, and the two
// small matrix products on them with plain multiplications. These steps differ only in the order of their loops.
#pragma once

#include <cuda_bf16.h>

#include "ladder/attention/launch.cuh"

namespace falchion::ladder::on_gpu {

using bf16 = __nv_bfloat16;

/// 256 threads, arranged as 16 x 16. Thread (y, x) has rows y + 16 r of the tile and columns x + 16 c. 16 neighbouring
/// threads, which are half a warp, share a row.
template <int kD>
struct PlainTile {
  static constexpr int kM = 64, kN = 4096 / kD, kThreads = 256;
  static constexpr int kRows = kM / 16, kKeys = kN / 16, kColumns = kD / 16;  // of one thread

  // Each row has one column more than it needs, so that the elements of a column lie in different banks.
  float Q[kM][kD + 1], K[kN][kD + 1], V[kN][kD + 1], P[kM][kN + 1];

  static __device__ int y() { return threadIdx.x / 16; }
  static __device__ int x() { return threadIdx.x % 16; }

  /// Loads rows [row0, row0 + n) of X, and 0 past its end.
  template <int n>
  static __device__ void load(float (&tile)[n][kD + 1], Head<const bf16> X, int row0, int rows) {
    for (int e = threadIdx.x; e < n * kD; e += kThreads) {
      const int row = row0 + e / kD;
      tile[e / kD][e % kD] = row < rows ? __bfloat162float(X[row][e % kD]) : 0;
    }
  }

  /// Computes S = scale Q K^T, and -inf where the mask says so.
  __device__ void scores(const Problem& p, const BandMask& mask, int q0, int k0, float (&S)[kRows][kKeys]) const {
    for (auto& row : S) {
      for (float& s : row) s = 0;
    }
#pragma unroll 4
    for (int i = 0; i < kD; ++i) {
      float k[kKeys];
      for (int c = 0; c < kKeys; ++c) k[c] = K[x() + 16 * c][i];
      for (int r = 0; r < kRows; ++r) {
        const float q = Q[y() + 16 * r][i];
        for (int c = 0; c < kKeys; ++c) S[r][c] += q * k[c];
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kKeys; ++c)
        S[r][c] = mask.keep(q0 + y() + 16 * r, k0 + x() + 16 * c) ? p.scale * S[r][c] : -INFINITY;
  }

  static __device__ float row_max(const float (&S)[kKeys]) {
    float m = -INFINITY;
    for (const float s : S) m = fmaxf(m, s);
    for (int other = 8; other > 0; other /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, other));
    return m;
  }
  /// Writes row r of P = exp(S - m) to shared memory and returns its sum.
  __device__ float exponentials(const float (&S)[kKeys], float m, int r) {
    float l = 0;
    for (int c = 0; c < kKeys; ++c) l += P[y() + 16 * r][x() + 16 * c] = weight(S[c], m);
    for (int other = 8; other > 0; other /= 2) l += __shfl_xor_sync(~0u, l, other);
    return l;
  }

  /// Computes O += P V.
  __device__ void add_values(float (&O)[kRows][kColumns]) const {
#pragma unroll 4
    for (int j = 0; j < kN; ++j) {
      float v[kColumns];
      for (int c = 0; c < kColumns; ++c) v[c] = V[j][x() + 16 * c];
      for (int r = 0; r < kRows; ++r) {
        const float probability = P[y() + 16 * r][j];
        for (int c = 0; c < kColumns; ++c) O[r][c] += probability * v[c];
      }
    }
  }
};

}  // namespace falchion::ladder::on_gpu
