// src/sm80/attention_forward/products.cuh: the two products of attention, with operands from shared memory through
// ldmatrix to mma.sync.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/mma_fragments.cuh"
#include "sm80/attention_forward/config.hpp"

namespace falchion::sm80 {

using namespace gpu;

/// Reads Q (M, D) into registers, where it stays. Used by variants with enough registers.
template <class Config, class Fragment, class Q>
FALCHION_DEVICE void read_q(typename Config::TiledMma mma, Fragment& rQ, const Q& sQ) {
  const auto copy_q = make_tiled_copy_A(typename Config::CopyAtomQ{}, mma).get_thread_slice(threadIdx.x);
  auto view = copy_q.retile_D(rQ);
  copy(typename Config::CopyAtomQ{}, copy_q.partition_S(sQ), view);
}

/// Computes S = Q K^T. The shapes are rS (4, M, N) f32, rQ (8, M, D / 16), sQ (M, D) and sK (N, D).
template <class Config, class Scores, class Fragment, class Q, class K>
FALCHION_DEVICE void multiply_q_k(typename Config::TiledMma mma, Scores& rS, Fragment& rQ, const Q& sQ, const K& sK) {
  const auto thread = mma.get_thread_slice(threadIdx.x);
  const auto copy_q = make_tiled_copy_A(typename Config::CopyAtomQ{}, mma).get_thread_slice(threadIdx.x);
  const auto copy_k = make_tiled_copy_B(typename Config::CopyAtomK{}, mma).get_thread_slice(threadIdx.x);
  auto rK = thread.partition_fragment_B(sK);  // (4, N, D / 16)
  auto rQ_view = copy_q.retile_D(rQ);
  auto rK_view = copy_k.retile_D(rK);
  const auto tQsQ = copy_q.partition_S(sQ);
  const auto tKsK = copy_k.partition_S(sK);
  const auto load_q = [&](auto k) {
    if constexpr (!Config::kQInRegisters) copy(typename Config::CopyAtomQ{}, tQsQ(_, _, k), rQ_view(_, _, k));
  };
  clear(rS);
  multiply(mma, rS, rQ, rK, load_q,
           [&](auto k) { copy(typename Config::CopyAtomK{}, tKsK(_, _, k), rK_view(_, _, k)); });
}

/// Computes O += P V, where prepare makes P, 16 keys at a time. The shapes are rO (4, M, D) f32, rP (8, M, N / 16) and
/// sVt (D, N).
template <class Config, class Output, class Fragment, class V, class Prepare>
FALCHION_DEVICE void multiply_p_v(typename Config::TiledMma mma, Output& rO, const Fragment& rP, const V& sVt,
                                  Prepare prepare) {
  const auto copy_v = make_tiled_copy_B(typename Config::CopyAtomV{}, mma).get_thread_slice(threadIdx.x);
  auto rV = mma.get_thread_slice(threadIdx.x).partition_fragment_B(sVt);  // (4, D, N / 16)
  auto rV_view = copy_v.retile_D(rV);
  const auto tVsV = copy_v.partition_S(sVt);
  multiply_prepared(mma, rO, rP, rV, prepare,
                    [&](auto k, auto i) { copy(typename Config::CopyAtomV{}, tVsV(_, i, k), rV_view(_, i, k)); });
}

}  // namespace falchion::sm80
