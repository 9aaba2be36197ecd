// src/sm90/gemm/bytes/sums.cuh: f32 sums of e4m3 products. wgmma adds such products with only 13 bits after the leading
// one and cuts off the rest, so it sums only one block of k, and each block's sum is added to sums in f32. (CUTLASS and
// DeepGEMM do the same.)
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/mma.cuh"
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

/// The same for tiles with two waves of rows, which share one accumulator. The tensor cores compute a wave of the other
/// warpgroup meanwhile. So a tile of twice the size takes no more registers. (DeepGEMM does the same.) A wave takes 256
/// cycles, and the other warpgroup has to start its next one within them. So it waits for the next stage before its
/// sums are added, and the number of a stage is shuffled, which tells the compiler that all lanes have the same: it
/// then makes the addresses of the operands in some 20 cycles instead of 120.
template <class Config, class A, class B, class Sums, class Release>
FALCHION_DEVICE void add_promoted_waves(const GemmTile& t, typename Config::Shared& shared, const A& rA, const B& rB,
                                        RingPosition<Config::kStages>& at, Sums& sums, Release release) {
  using Mma = typename Config::Mma;
  auto blocks = static_cast<int>((t.k1 - t.k0 + Config::kDepth - 1) / Config::kDepth);
  if (blocks <= 0) return;
  auto block = partition_fragment_C(Mma{}, Shape<Int<64 * Config::kConsumers>, Int<Config::kColumns>>{});
  const auto start = [&](int wave, int stage) {
    const auto own = rA(_, wave, _, stage);  // (1, steps of K)
    const auto a = make_tensor(own.data(), make_layout(get<0>(own.layout()), Layout<_1, _0>{}, get<1>(own.layout())));
    start_multiply<true>(Mma{}, a, rB(_, _, _, stage), block);  // block = A B^T
  };
  shared.full[at.stage].wait(at.parity);
  start(0, at.stage);
  while (true) {
    CUTE_UNROLL
    for (int wave = 0; wave < Config::kWaves; ++wave) {
      const bool last = wave == Config::kWaves - 1;
      const int read = at.stage;
      if (last) {
        at.advance();
        if (blocks > 1) shared.full[at.stage].wait(at.parity);
      }
      const int stage = __shfl_sync(~0u, at.stage, 0);
      wait_multiply<0>(block);
      if (last) release(read);
      CUTE_UNROLL
      for (int i = 0; i < size(block); ++i) sums(i + wave * size(block)) += block(i);
      if (last && --blocks == 0) return;
      start((wave + 1) % Config::kWaves, stage);
    }
  }
}

}  // namespace falchion::sm90
