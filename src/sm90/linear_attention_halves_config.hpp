// src/sm90/linear_attention_halves_config.hpp: layouts, barriers and shared memory of linear attention in f32 on
// Hopper.
#pragma once

#include "sm90/linear_attention_config.hpp"

namespace falchion::sm90 {

/// f32 as the sum of two f16, of whose four products three are taken. A warp loads k and v, two warpgroups take them
/// apart, one carries the state; a warp loads q, one warpgroup takes it apart and makes the outputs, a warp stores.
template <int kD_>
struct LinearHalvesConfig : LinearTiles<cutlass::half_t, kD_> {
  using Half = cutlass::half_t;
  using Tiles = LinearTiles<Half, kD_>;
  using Tiles::kD, Tiles::kChunk, Tiles::kColumns;
  static constexpr int kTerms = 2, kStages = 2, kSlots = kD <= 64 ? 2 : 1, kTiles = kD <= 64 ? 2 : 1, kCtas = 1;
  static constexpr int kBox = 64 * 64, kBoxes = kD <= 64 ? 4 : 3, kBoxesOfQ = 2;  // f32, as it comes
  static constexpr int kSplitters = 2, kThreads = 128 * (2 + kSplitters + 1);
  // Of each thread: before they are dealt out anew, then.
  static constexpr int kRegisters = 65536 / kThreads / 8 * 8, kRegistersOfState = 144, kRegistersOfOutputs = 168,
                       kRegistersOfSplitters = 72, kRegistersOfMovers = 24;
  static_assert(kRegistersOfState + kRegistersOfOutputs + kSplitters * kRegistersOfSplitters + kRegistersOfMovers <=
                kThreads / 128 * kRegisters);

  // One copy: each stage and each term of it is addressed by itself.
  using LayoutK = typename Tiles::template ByRows<kChunk, kD, 1>;            // (C, E)
  using LayoutKt = typename Tiles::template ByColumns<kChunk, 64, 1>;        // (E, C), 64 of E
  using LayoutVt = typename Tiles::template ByColumns<kChunk, kColumns, 1>;  // (M, C)
  using LayoutSt = typename Tiles::template ByColumns<kD, kColumns, 1>;      // (M, E)

  template <int kN, int kK, cute::GMMA::Major kB>
  using Rs = decltype(cute::make_tiled_mma(
      cute::GMMA::rs_op_selector<Half, Half, float, typename Tiles::template ShapeOf<kN, kK>, Tiles::kByK, kB>()));
  using MmaQk = Rs<kChunk, kD, Tiles::kByK>;     // P = Q K^T
  using MmaQs = Rs<kColumns, kD, Tiles::kByMN>;  // O = Q S

  enum Operand { kK, kV, kOperands };  // that the splitters take apart

  struct Shared {
    alignas(1024) float box[kBoxes][kBox];                     // of k and v: 64 tokens, 2 x 32 columns
    alignas(1024) float q_box[kBoxesOfQ][kBox];                // likewise
    alignas(1024) Half k[kTerms][kStages][kChunk * kD];        // (C, E); what the splitters fill
    alignas(1024) Half v[kTerms][kStages][kChunk * kColumns];  // (C, M)
    alignas(1024) Half s[kTerms][kSlots][kD * kColumns];       // (E, M), before its chunk
    alignas(1024) float o[kTiles][kChunk * kColumns];          // 64 tokens, 2 x 32 columns
    int exponent[kOperands][kStages], s_exponent[kSlots];      // of 2, by which they are multiplied
    alignas(16) unsigned largest[2][4 * kSplitters];           // of each warp of the splitters, this time and before
    alignas(16) unsigned s_largest[4];                         // of each warp that carries S
    BarrierOfBytes box_full[kBoxes], q_full[kBoxesOfQ];
    Barrier box_empty[kBoxes], q_empty[kBoxesOfQ], full[kOperands][kStages], empty[kOperands][kStages];
    Barrier s_full[kSlots], s_empty[kSlots], o_full[kTiles], o_empty[kTiles];
    CUTE_DEVICE void init() {
      for (int i = 0; i < kBoxes; ++i) box_full[i].init(1), box_empty[i].init(4 * kSplitters);
      for (int i = 0; i < kBoxesOfQ; ++i) q_full[i].init(1), q_empty[i].init(4);
      for (int i = 0; i < kStages; ++i)
        for (int operand = 0; operand < kOperands; ++operand)
          full[operand][i].init(4 * kSplitters), empty[operand][i].init(4 * 2);  // state and outputs
      for (int i = 0; i < kSlots; ++i) s_full[i].init(4), s_empty[i].init(4);
      for (int i = 0; i < kTiles; ++i) o_full[i].init(4), o_empty[i].init(1);
      cutlass::arch::fence_barrier_init();
    }
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes <= 227 << 10);
};

}  // namespace falchion::sm90
