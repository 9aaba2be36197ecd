// src/sm90/gemm/bytes/sums.cuh: f32 sums of e4m3 products. wgmma adds such products with only 13 bits after the leading
// one and cuts off the rest, so it sums only one block of k, and each block's sum is added to sums in f32. (CUTLASS and
// DeepGEMM do the same.)
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_wgmma.cuh"
#include "sm90/gemm/bytes/turns.hpp"
#include "sm90/gemm/load.cuh"

namespace falchion::sm90 {

/// Adds the blocks of k of a tile to `sums`, from stage `at` of the ring on. Blocks alternate between two accumulators,
/// so that the tensor cores compute one block while the other is added: 64 additions a thread for 4 products of 64 x
/// 128 x 32, which take 256 cycles. release(stage): this warpgroup has read that stage.
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
    start_multiply<true>(Mma{}, rA(_, _, _, at.stage), rB(_, _, _, at.stage), x.block);  // block = A B^T
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
