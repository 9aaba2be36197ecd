// src/sm90/linear_attention/kernel.cuh: causal linear attention on Hopper, in chunks of 64 tokens, with TMA and wgmma.
// ref/ defines the result; this file gives the order of the steps. Each warpgroup does one part of a chunk, and rings
// of mbarriers connect them (roles.cuh has the list). The counterpart for sm_80 is sm80/linear_attention/kernel.cuh.
// docs/design/linear_attention.md has the schedule and the measurements.
#pragma once

#include "base/host_device.hpp"
#include "sm90/linear_attention/config.hpp"
#include "sm90/linear_attention/fragments.cuh"
#include "sm90/linear_attention/state.cuh"

namespace falchion::sm90 {

/// The producer, one thread: for each chunk it waits until a stage is empty and loads k, q and v into it. For sums
/// (kSums) it does not load q. The divisions that find its heads stand before the loop: inside it, three divisions made
/// the producer the slowest role (a chunk took 1170 clocks instead of 950).
template <class Config, bool kSums>
FALCHION_DEVICE void load_chunks(const LinearCta& cta, const ChunkRange& chunks, RingPosition<Config::kStages>& at,
                                 typename Config::Shared& shared) {
  constexpr int kBoxes = Config::kD / 64, kBox = 64 * 64;
  const LinearSweep& sweep = cta.sweep;
  const int h = cta.block.h;
  const int head_q = h / sweep.q.shared;
  const int head_k = h / sweep.k.shared;
  const int head_v = h / sweep.v.shared;
  for (int i = 0; i < chunks.count; ++i, at.advance()) {
    shared.empty[at.stage].wait(at.parity ^ 1);
    auto& full = shared.full[at.stage];
    full.arrive_and_expect_tx(((kSums ? 1 : 2) * kBoxes + 1) * kBox * sizeof(typename Config::Element));
    const auto load = [&](const CUtensorMap& map, typename Config::Element* to, int column, int head) {
      cute::SM90_TMA_LOAD_4D::copy(&map, reinterpret_cast<std::uint64_t*>(&full), kReadByOthers, to, column, head,
                                   chunks.row(i), cta.block.b);
    };
    CUTE_UNROLL
    for (int box = 0; box < kBoxes; ++box) {
      load(cta.maps.k, shared.k[at.stage] + box * kBox, 64 * box, head_k);
      if constexpr (!kSums) load(cta.maps.q, shared.q[at.stage] + box * kBox, 64 * box, head_q);
    }
    load(cta.maps.v, shared.v[at.stage], cta.column0, head_v);
  }
}

/// The warpgroup that carries S from the first chunk to the last. For each chunk it waits for k and v (full) and starts
/// S += K^T V; waits for a free slot (s_empty), puts S as it was before this chunk there and signals s_full; waits for
/// its product, and releases k and v (empty).
template <class Config>
class LinearState : public LinearStateElements<Config> {
 public:
  using LinearStateElements<Config>::LinearStateElements;

  /// kSums: only adds `count` chunks to S. Otherwise it also rounds S before each chunk and passes it to the output
  /// warps.
  template <bool kSums, class Shared>
  FALCHION_DEVICE void run(int count, Shared& shared) {
    RingPosition<Config::kSlots> slot;
    const auto slice = typename Config::MmaState{}.get_slice(0);
    const auto rK = slice.partition_fragment_A(in_shared(shared.k[0], typename Config::LayoutKt{}));
    const auto rV = slice.partition_fragment_B(in_shared(shared.v[0], typename Config::LayoutVt{}));
    CUTE_NO_UNROLL
    for (int i = 0; i < count; ++i, at.advance()) {
      if constexpr (!kSums) convert(rS, rounded);
      shared.full[at.stage].wait(at.parity);
      // S += K^T V
      start_multiply<false>(typename Config::MmaState{}, rK(_, _, _, at.stage), rV(_, _, _, at.stage), rS);
      if constexpr (!kSums) {
        shared.s_empty[slot.stage].wait(slot.parity ^ 1);
        CUTE_UNROLL
        for (int half = 0; half < kHalves; ++half)
          stage(rounded(_, half), shared.s[slot.stage] + half * 64 * Config::kColumns);
        publish_to_async();
        __syncwarp();
        arrive_by_warp(shared.s_full[slot.stage]);
        slot.advance();
      }
      wait_multiply<0>(rS);
      arrive_by_warp(shared.empty[at.stage], kSums ? 2 : 1);  // during sums also in place of an output warp
    }
  }

 private:
  using LinearStateElements<Config>::rS, LinearStateElements<Config>::kHalves;
  RingPosition<Config::kStages> at;
  decltype(make_tensor<typename Config::Element>(Layout<Shape<_32, Int<kHalves>>>{})) rounded;
};

/// A warpgroup that makes the outputs of every kOutputs-th chunk. It waits for q, k and v (full) and starts P = Q K^T;
/// waits for S (s_full) and starts O = Q S; waits for P, masks it and starts O += P V; waits for O and releases the
/// stage (empty) and S (s_empty); waits for a free tile (o_empty), puts O there and signals o_full.
template <class Config>
class LinearOutputs {
 public:
  using Element = typename Config::Element;
  using Shared = typename Config::Shared;

  FALCHION_DEVICE LinearOutputs(const LinearCta& cta, Shared& shared)
      : sweep(cta.sweep), chunks(cta.chunks), shared(shared), kept(causal_bits(chunks)), at(cta.to_sum()) {}

  FALCHION_DEVICE void run(int group) {
    RingPosition<Config::kSlots> slot;
    RingPosition<Config::kTiles> tile;
    const auto advance = [&] {
      at.advance();
      slot.advance();
      tile.advance();
    };
    for (int i = 0; i < group; ++i) advance();
    wait_for_sums<Config>();
    CUTE_NO_UNROLL
    for (int i = group; i < chunks.count; i += Config::kOutputs) {
      shared.full[at.stage].wait(at.parity);
      start_p(at.stage);  // P = Q K^T
      shared.s_full[slot.stage].wait(slot.parity);
      start_qs(at.stage, slot.stage);  // O = Q S
      wait_multiply<1>(rP);
      mask_p();            // P = 0 for later tokens
      start_pv(at.stage);  // O += P V
      wait_multiply<0>(rO);
      arrive_by_warp(shared.empty[at.stage]);
      arrive_by_warp(shared.s_empty[slot.stage]);
      CUTE_UNROLL
      for (int j = 0; j < size(rO); ++j) rO(j) *= sweep.scale;
      convert(rO, rounded);
      shared.o_empty[tile.stage].wait(tile.parity ^ 1);
      stage(rounded, shared.o[tile.stage]);
      publish_to_async();
      __syncwarp();
      arrive_by_warp(shared.o_full[tile.stage]);
      CUTE_UNROLL
      for (int n = 0; n < Config::kOutputs; ++n) advance();
    }
  }

 private:
  FALCHION_DEVICE void start_p(int stage) {  // P = Q K^T (C, C)
    const auto slice = typename Config::MmaQk{}.get_slice(0);
    const auto rQ = slice.partition_fragment_A(in_shared(shared.q[0], typename Config::LayoutQ{}));
    const auto rK = slice.partition_fragment_B(in_shared(shared.k[0], typename Config::LayoutQ{}));
    start_multiply<true>(typename Config::MmaQk{}, rQ(_, _, _, stage), rK(_, _, _, stage), rP);
  }
  FALCHION_DEVICE void start_qs(int stage, int slot) {  // O = Q S (C, M)
    const auto slice = typename Config::MmaQs{}.get_slice(0);
    const auto rQ = slice.partition_fragment_A(in_shared(shared.q[0], typename Config::LayoutQ{}));
    const auto rS = slice.partition_fragment_B(in_shared(shared.s[0], typename Config::LayoutSt{}));
    start_multiply<true>(typename Config::MmaQs{}, rQ(_, _, _, stage), rS(_, _, _, slot), rO);
  }
  FALCHION_DEVICE void mask_p() {  // rounds P; 0 for later tokens of the sweep
    convert(rP, rounded);
    auto pairs = recast<std::uint32_t>(rounded);
    CUTE_UNROLL
    for (int i = 0; i < size(pairs); ++i) pairs(i) &= kept(i);
  }
  FALCHION_DEVICE void start_pv(int stage) {  // O += P V (C, M)
    const auto rV =
        typename Config::MmaPv{}.get_slice(0).partition_fragment_B(in_shared(shared.v[0], typename Config::LayoutVt{}));
    start_multiply<false>(typename Config::MmaPv{}, as_wgmma_operand_a(rounded), rV(_, _, _, stage), rO);
  }

  const LinearSweep& sweep;
  const ChunkRange& chunks;
  Shared& shared;
  const CausalBits kept;
  RingPosition<Config::kStages> at;
  decltype(partition_fragment_C(typename Config::MmaQk{}, Shape<_64, _64>{})) rP;  // (C, C) f32
  decltype(partition_fragment_C(typename Config::MmaQs{}, Shape<_64, _64>{})) rO;  // (C, M) f32
  decltype(make_tensor<Element>(Layout<_32>{})) rounded;                           // P as operand A, then O
};

}  // namespace falchion::sm90
