// src/sm80/linear_attention/exact/load.cuh: the operands of a chunk in linear attention with f32 between all products:
// q, k and v in shared memory, the weights of the tokens, and a thread's elements of the matrices.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/tf32.cuh"
#include "sm80/linear_attention/exact/rows.cuh"

namespace falchion::sm80 {

/// The operands of one CTA. Lane (g, t) of warp w has rows 16 (w % 4) + g and 16 (w % 4) + g + 8 of P, of S^T and of
/// O^T. Two warps share these rows.
template <class Config>
class LinearExactOperands {
 public:
  using Shared = typename Config::Shared;
  using Weights = LinearWeights<Config::kGeneral>;
  static constexpr int kC = Config::kChunk, kE = Config::kD, kM = Config::kColumns, kStages = Config::kStages;
  static constexpr int kParts = Config::kParts, kStrideQ = Config::kStrideQ, kStrideV = Config::kStrideV;
  static constexpr int kBlocks = kC / 8;  // the number of blocks of 8 tokens
  static constexpr int kHalf = kBlocks / 2;

  FALCHION_DEVICE LinearExactOperands(const gpu::LinearAttentionArgs& a, const LinearSweep& sweep,
                                      const LinearPiece& piece, Shared& shared)
      : sweep(sweep),
        piece(piece),
        shared(shared),
        columns(min(sweep.d_v - piece.column0, kM)),
        warp(static_cast<int>(threadIdx.x) / 32),
        half(warp / 4),
        g(static_cast<int>(threadIdx.x) % 32 / 4),
        t(static_cast<int>(threadIdx.x) % 4),
        q(piece, sweep.q, 0, sweep.d_qk, a.aligned),
        k(piece, sweep.k, 0, sweep.d_qk, a.aligned),
        v(piece, sweep.v, piece.column0, columns, a.aligned),
        weights(sweep, piece) {}

 protected:
  /// The row of the CTA's P, S^T, V^T and O^T that element i of an accumulator belongs to.
  FALCHION_DEVICE int own_row(int i) const { return 16 * (warp % 4) + g + i / 2 * 8; }
  /// The first column of P in this thread's accumulator n, and the first column of S^T in its accumulator j.
  FALCHION_DEVICE int own_token(int n) const { return 8 * (kHalf * half + n) + 2 * t; }
  FALCHION_DEVICE int own_column(int j) const { return kE / 2 * half + 8 * j + 2 * t; }

  // ---- load ---------------------------------------------------------------------------------------------------------
  FALCHION_DEVICE void load(int c, bool with_q) {
    if (c < piece.chunks) {
      if (with_q) q.load(c, shared.q[c % kStages]);
      k.load(c, shared.k[c % kStages]);
      v.load(c, shared.v[c % kStages]);
    }
    cp_async_fence();
  }
  /// Afterwards all threads have chunk c, and none still reads chunk c - 1, its P or its weights.
  FALCHION_DEVICE void arrive(int c, bool with_q) {
    if constexpr (kStages == 1) {
      __syncthreads();
      load(c, with_q);
    }
    cp_async_wait<0>();
    if (with_q) q.arrived(c, shared.q[c % kStages]);
    k.arrived(c, shared.k[c % kStages]);
    v.arrived(c, shared.v[c % kStages]);
    __syncthreads();
    if constexpr (kStages > 1) load(c + 1, with_q);
    weights.next(c + 1, shared.weights);
  }

  // ---- weights: warp 0 computes them one chunk ahead ----------------------------------------------------------------
  FALCHION_DEVICE const float* weight(int c, int which) const { return shared.weights[c % 2][which]; }

  const LinearSweep& sweep;
  const LinearPiece& piece;
  Shared& shared;
  const int columns;           // columns of v and o that this CTA has
  const int warp, half, g, t;  // lane = 4 g + t
  const LinearExactRows<Config, kE, kStrideQ> q, k;
  const LinearExactRows<Config, kM, kStrideV> v;
  Weights weights;
};

}  // namespace falchion::sm80
