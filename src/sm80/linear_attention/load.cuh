// src/sm80/linear_attention/load.cuh: the operands of a chunk of linear attention in 16 bits: q, k and v in shared
// memory, loaded by cp.async some chunks ahead, V^T in registers, and the decay of the tokens.
#pragma once

#include "base/host_device.hpp"
#include "sm80/linear_attention/piece.cuh"

namespace falchion::sm80 {

/// The operands of one CTA: 64 columns of v, and all of q and k.
template <class Config>
class LinearChunkOperands {
 public:
  using Element = typename Config::Element;
  using Shared = typename Config::Shared;
  using Mma = typename Config::TiledMma;
  static constexpr int kC = Config::kChunk, kE = Config::kD, kM = Config::kColumns, kStages = Config::kStages;

  FALCHION_DEVICE LinearChunkOperands(const gpu::LinearAttentionArgs& a, const LinearSweep& sweep,
                                      const LinearPiece& piece, Shared& shared)
      : sweep(sweep),
        piece(piece),
        shared(shared),
        columns(min(sweep.d_v - piece.column0, kM)),
        q(piece, sweep.q, 0, sweep.d_qk, a.aligned),
        k(piece, sweep.k, 0, sweep.d_qk, a.aligned),
        v(piece, sweep.v, piece.column0, columns, a.aligned),
        decay(sweep, piece) {}

 protected:
  // ---- load ---------------------------------------------------------------------------------------------------------
  template <class Layout_>
  FALCHION_DEVICE auto tile(Element* data, Layout_ layout) const {
    return make_tensor(make_smem_ptr(data), layout);
  }
  FALCHION_DEVICE auto tile_q(int c) const { return tile(shared.q[c % kStages], typename Config::LayoutQ{}); }
  FALCHION_DEVICE auto tile_k(int c) const { return tile(shared.k[c % kStages], typename Config::LayoutQ{}); }
  FALCHION_DEVICE auto tile_v(int c) const { return tile(shared.v[c % kStages], typename Config::LayoutV{}); }

  FALCHION_DEVICE void load(int c, bool with_q) {
    if (c < piece.chunks) {
      if (with_q) q.load(c, tile_q(c));
      k.load(c, tile_k(c));
      v.load(c, tile_v(c));
    }
    cp_async_fence();
  }
  FALCHION_DEVICE void arrived(int c, bool with_q) {
    if (with_q) q.apply_phi(c, tile_q(c));
    k.apply_phi(c, tile_k(c));
    v.apply_phi(c, tile_v(c));
  }

  // ---- decay: warp 0 computes it two chunks ahead -------------------------------------------------------------------
  FALCHION_DEVICE void start_decay() {
    if (!decay.any() || threadIdx.x >= 32) return;
    for (int c = 0; c < 2; ++c) {
      decay.fetch(c);
      decay.scan(shared.sum[c], shared.grown[c], shared.left[c]);
    }
    decay.fetch(2);
  }
  FALCHION_DEVICE void scan_decay(int c) {
    if (!decay.any() || threadIdx.x >= 32 || c >= piece.chunks) return;
    decay.scan(shared.sum[c % 3], shared.grown[c % 3], shared.left[c % 3]);
    decay.fetch(c + 1);
  }

  // ---- V^T (M, C) in registers --------------------------------------------------------------------------------------
  FALCHION_DEVICE void read_v(int c) {
    const auto sVt = tile(shared.v[c % kStages], typename Config::LayoutVt{});  // (M, C)
    const auto copy_v = make_tiled_copy_A(typename Config::CopyAtomT{}, Mma{}).get_thread_slice(threadIdx.x);
    auto view = copy_v.retile_D(rV);
    copy(typename Config::CopyAtomT{}, copy_v.partition_S(sVt), view);
  }

  const LinearSweep& sweep;
  const LinearPiece& piece;
  Shared& shared;
  const int columns;  // columns of v and o that this CTA has
  const LinearRows<Config> q, k, v;
  DecayOfChunk<Config::kGeneral> decay;
  decltype(make_tensor<Element>(Shape<Shape<_2, _2, _2>, _1, Int<kC / 16>>{})) rV;  // V^T as operand A
};

}  // namespace falchion::sm80
