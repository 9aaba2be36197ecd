// src/sm90/linear_attention_wide_config.hpp: layouts, barriers and shared memory of linear attention in f32 on Hopper
// where a CTA has all 128 columns of a head.
#pragma once

#include "sm90/linear_attention_config.hpp"

namespace falchion::sm90 {

/// f32 as two f16, as linear_attention_halves_config.hpp has it, but q and k are taken apart once a head instead of
/// once for each 64 columns. Two warpgroups take q, k and v apart, two carry the state, one makes the outputs. There is
/// room for one chunk alone, and no sixth warpgroup that loads or stores: with 768 threads ptxas has 80 registers for
/// each, and 64 accumulators do not go into them.
struct LinearWideConfig : LinearTiles<cutlass::half_t, 128, 128> {
  using Half = cutlass::half_t;
  using Tiles = LinearTiles<Half, 128, 128>;
  static constexpr int kTerms = 2, kCtas = 1, kStates = 2, kSplitters = 2, kThreads = 128 * (kStates + 1 + kSplitters);
  // Of each thread: before they are dealt out anew, then.
  static constexpr int kRegisters = 65536 / kThreads / 8 * 8, kRegistersOfState = 112, kRegistersOfOutputs = 128,
                       kRegistersOfSplitters = 64;
  static_assert(kStates * kRegistersOfState + kRegistersOfOutputs + kSplitters * kRegistersOfSplitters <=
                kThreads / 128 * kRegisters);

  using LayoutK = Tiles::ByRows<kChunk, kD, 1>;            // (C, E); of q, too
  using LayoutKt = Tiles::ByColumns<kChunk, 64, 1>;        // (E, C), 64 of E; 64 of v's columns, too
  using LayoutVt = Tiles::ByColumns<kChunk, kColumns, 1>;  // (M, C)
  using LayoutSt = Tiles::ByColumns<kD, kColumns, 1>;      // (M, E)

  enum Operand { kK, kV, kQ, kOperands };  // in this order they are taken apart, two boxes each
  static constexpr int kBox = 64 * 64, kPlaces = 3;

  struct Shared {
    alignas(1024) float box[kPlaces][kBox];           // 64 tokens, 2 x 32 columns; box n of a chunk lies in n % 3
    alignas(1024) Half k[kTerms][kChunk * kD];        // (C, E); what the splitters fill
    alignas(1024) Half v[kTerms][kChunk * kColumns];  // (C, M)
    alignas(1024) Half q[kTerms][kChunk * kD];        // (C, E)
    alignas(1024) Half s[kTerms][kD * kColumns];      // (E, M), before its chunk
    alignas(1024) float o[kBox];                      // 64 tokens, 2 x 32 columns
    int exponent[2][2], s_exponent;  // of 2, by which k and v (of every other chunk) and S are multiplied
    alignas(16) signed char q_exponent[kChunk / 2];  // of every two tokens
    alignas(16) unsigned largest[2][8];              // of the splitters' warps, this time and before
    BarrierOfBytes box_full[2 * kOperands];
    Barrier known[2], full[kOperands], empty[kOperands], s_full, s_empty;  // known: the exponents of k and v
    CUTE_DEVICE void init() {
      for (auto& barrier : box_full) barrier.init(1);
      for (auto& barrier : known) barrier.init(1);
      for (int i = 0; i < kOperands; ++i) full[i].init(8), empty[i].init(i == kQ ? 4 : 4 + 8);  // outputs; and state
      s_full.init(8), s_empty.init(4);
      cutlass::arch::fence_barrier_init();
    }
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes <= 227 << 10);
};

}  // namespace falchion::sm90
