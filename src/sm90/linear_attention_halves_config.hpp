// src/sm90/linear_attention_halves_config.hpp: layouts, barriers and shared memory of linear attention in f32 on
// Hopper.
#pragma once

#include "sm90/linear_attention_config.hpp"

namespace falchion::sm90 {

/// f32 as the sum of two f16, of whose four products three are taken. Two warps load, two warpgroups take k and v
/// apart, one carries the state, one makes the outputs, a warp stores. At d 64 the splitters take q apart too, each a
/// tile by itself; at d 128 they have no time for it, and both share a tile, of which one could not hold its part.
template <int kD_>
struct LinearHalvesConfig : LinearTiles<cutlass::half_t, kD_> {
  using Half = cutlass::half_t;
  using Tiles = LinearTiles<Half, kD_>;
  using Tiles::kD, Tiles::kChunk, Tiles::kColumns;
  static constexpr LinearTile kTile = linear_halves_tile(kD);
  static constexpr bool kSplitQ = linear_halves_split_q(kD);
  static constexpr int kTerms = 2, kStages = kTile.stages, kSlots = kTile.slots, kTiles = kTile.tiles, kCtas = 1;
  static constexpr int kSplitters = 2, kTeams = kSplitQ ? 2 : 1;  // warpgroups, and those that have a tile of their own
  static constexpr int kOutputs = kTile.outputs, kThreads = kTile.threads;
  // Boxes of f32, as it comes, in two rings: of each team, or of the splitters and of the outputs, who take q apart.
  static constexpr int kBox = 64 * 64, kBoxes = 3, kAllBoxes = linear_halves_boxes(kD),
                       kBoxesOfSecond = kAllBoxes - kBoxes;
  // Of each thread: before they are dealt out anew, then.
  static constexpr int kRegisters = 65536 / kThreads / 8 * 8, kRegistersOfMovers = 24, kRegistersOfState = 144,
                       kRegistersOfOutputs = kSplitQ ? 152 : 168, kRegistersOfSplitters = kSplitQ ? 80 : 72;
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

  enum Operand { kK, kV, kQ, kOperands };  // that the splitters take apart

  struct Shared {
    alignas(1024) float box[kAllBoxes][kBox];                          // of q, k and v: 64 tokens, 2 x 32 columns
    alignas(1024) Half k[kTerms][kStages][kChunk * kD];                // (C, E); what the splitters fill
    alignas(1024) Half v[kTerms][kStages][kChunk * kColumns];          // (C, M)
    alignas(1024) Half q[kTerms][kSplitQ ? kChunk * kD : 1];           // (C, E)
    alignas(1024) Half s[kTerms][kSlots][kD * kColumns];               // (E, M), before its chunk
    alignas(1024) float o[kTiles][kChunk * kColumns];                  // 64 tokens, 2 x 32 columns
    int exponent[2][kStages], s_exponent[kSlots];                      // of 2, by which k, v and S are multiplied
    alignas(16) signed char q_exponent[kChunk / 2];                    // of every two tokens
    alignas(16) unsigned largest[kTeams][2][4 * kSplitters / kTeams];  // of a team's warps, this time and before
    alignas(16) unsigned s_largest[4];                                 // of each warp that carries S
    BarrierOfBytes box_full[kAllBoxes];
    Barrier box_empty[kAllBoxes], full[kOperands][kStages], empty[kOperands][kStages];
    Barrier s_full[kSlots], s_empty[kSlots], o_full[kTiles], o_empty[kTiles];
    CUTE_DEVICE void init() {
      constexpr int kWarps = 4 * kSplitters / kTeams;
      for (int i = 0; i < kAllBoxes; ++i) box_full[i].init(1), box_empty[i].init(i < kBoxes ? kWarps : 4);
      for (int i = 0; i < kStages; ++i)
        for (int operand = 0; operand < kOperands; ++operand)
          full[operand][i].init(kWarps), empty[operand][i].init(operand == kQ ? 4 : 4 * 2);  // outputs; and state
      for (int i = 0; i < kSlots; ++i) s_full[i].init(4), s_empty[i].init(4);
      for (int i = 0; i < kTiles; ++i) o_full[i].init(4), o_empty[i].init(1);
      cutlass::arch::fence_barrier_init();
    }
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes <= 227 << 10);
};

}  // namespace falchion::sm90
