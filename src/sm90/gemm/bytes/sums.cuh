// src/sm90/gemm/bytes/sums.cuh: sums of products of e4m3 that stay f32. wgmma adds such products in numbers with 13
// bits behind the first one and cuts off the rest, so only the products of one block of k are left to it, and each
// block's sum is added to sums in f32. (CUTLASS and DeepGEMM do the same.)
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_wgmma.cuh"
#include "sm90/gemm/bytes/turns.hpp"
#include "sm90/gemm/load.cuh"

namespace falchion::sm90 {

/// Adds the blocks of k of a tile to `sums`, from stage `at` of the ring on. Blocks go to two accumulators in turn, so
/// that the tensor cores have the next block to multiply while one is added: 64 additions a thread for 4 products of 64
/// x 128 x 32, which take 256 cycles. release(stage): says that this warpgroup has read it.
template <class Config, class A, class B, class Sums, class Release>
FALCHION_DEVICE void add_promoted(const GemmTile& t, typename Config::Shared& shared, const A& rA, const B& rB,
                                  RingPosition<Config::kStages>& at, Sums& sums, Release release) {
  using Mma = typename Config::Mma;
  clear(sums);
  struct {
    decltype(make_fragment_like(sums)) block;
    int stage;
  } even, odd;
  const auto start = [&](auto& x) {
    x.stage = at.stage;
    shared.full[at.stage].wait(at.parity);
    start_multiply<true>(Mma{}, rA(_, _, _, at.stage), rB(_, _, _, at.stage), x.block);
    at.advance();
  };
  const auto finish = [&](auto& x, auto running) {
    wait_multiply<decltype(running)::value>(x.block);
    release(x.stage);
    CUTE_UNROLL
    for (int i = 0; i < size(sums); ++i) sums(i) += x.block(i);
  };
  take_turns((t.k1 - t.k0 + Config::kDepth - 1) / Config::kDepth, even, odd, start, finish);
}

}  // namespace falchion::sm90
