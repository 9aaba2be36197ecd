// src/sm90/gemm_bytes_sums.cuh: sums of products of e4m3 that stay f32. wgmma adds such products in numbers with 13
// bits behind the first one and cuts off the rest, so only the products of one block of k are left to it, and each
// block's sum is added to sums in f32. (CUTLASS and DeepGEMM do the same.)
#pragma once

#include "blocks/sm90_wgmma.cuh"
#include "sm90/gemm_load.cuh"

namespace falchion::sm90 {

/// Adds the blocks of k of a tile to `sums`, from stage `at` of the ring on. Blocks go to two accumulators in turn, so
/// that the tensor cores have the next block to multiply while one is added: 64 additions a thread for 4 products of 64
/// x 128 x 32, which take 256 cycles. release(stage): says that this warpgroup has read it.
template <class Config, class A, class B, class Sums, class Release>
__device__ __forceinline__ void add_promoted(const GemmTile& t, typename Config::Shared& shared, const A& rA,
                                             const B& rB, RingPosition<Config::kStages>& at, Sums& sums,
                                             Release release) {
  using Mma = typename Config::Mma;
  auto even = make_fragment_like(sums), odd = make_fragment_like(sums);
  const auto start = [&](auto& block) {
    const int stage = at.stage;
    shared.full[stage].wait(at.parity);
    start_multiply<true>(Mma{}, rA(_, _, _, stage), rB(_, _, _, stage), block);
    at.advance();
    return stage;
  };
  const auto finish = [&](const auto& block, int stage) {
    release(stage);
    CUTE_UNROLL
    for (int i = 0; i < size(sums); ++i) sums(i) += block(i);
  };

  std::int64_t k = t.k0;
  if (k >= t.k1) return;
  int of_even = start(even);
  for (k += Config::kDepth; k < t.k1; k += Config::kDepth) {
    const int of_odd = start(odd);
    wait_multiply<1>(even);
    finish(even, of_even);
    k += Config::kDepth;
    if (k >= t.k1) {
      wait_multiply<0>(odd);
      finish(odd, of_odd);
      return;
    }
    of_even = start(even);
    wait_multiply<1>(odd);
    finish(odd, of_odd);
  }
  wait_multiply<0>(even);
  finish(even, of_even);
}

}  // namespace falchion::sm90
