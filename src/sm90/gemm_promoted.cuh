// src/sm90/gemm_promoted.cuh: sums of e4m3. The tensor cores keep 13 bits below the largest of the products that they
// add, and of what they have added so far (docs/contract.md). So each block of 128 of k is summed apart, from zero, and
// then added in f32.
#pragma once

#include "blocks/sm90_wgmma.cuh"
#include "sm90/gemm_load.cuh"

namespace falchion::sm90 {

/// Adds the next `blocks` blocks of the ring to sums, and releases their stages. While one block is added, the products
/// of the next one run: they have registers of their own.
template <class Config, class A, class B, class Sums, class Release>
__device__ __forceinline__ void add_blocks(const A& rA, const B& rB, typename Config::Shared& shared,
                                           RingPosition<Config::kStages>& at, std::int64_t blocks, Sums& sums,
                                           const Release& release) {
  using Mma = typename Config::Mma;
  const auto fragment = [] { return partition_fragment_C(Mma{}, Shape<Int<Config::kRows>, Int<Config::kColumns>>{}); };
  auto even = fragment(), odd = fragment();
  const auto start = [&](auto& block) {
    const int stage = at.stage;
    shared.full[stage].wait(at.parity);
    start_multiply<true>(Mma{}, rA(_, _, _, stage), rB(_, _, _, stage), block);
    at.advance();
    return stage;
  };
  const auto add = [&](int stage, auto& block) {
    release(stage);
    CUTE_UNROLL
    for (int i = 0; i < size(sums); ++i) sums(i) += block(i);
  };
  if (blocks == 0) return;
  int of_even = start(even);
  while (true) {
    if (--blocks == 0) {
      wait_multiply<0>(even);
      return add(of_even, even);
    }
    const int of_odd = start(odd);
    wait_multiply<1>(even);
    add(of_even, even);
    if (--blocks == 0) {
      wait_multiply<0>(odd);
      return add(of_odd, odd);
    }
    of_even = start(even);
    wait_multiply<1>(odd);
    add(of_odd, odd);
  }
}

}  // namespace falchion::sm90
