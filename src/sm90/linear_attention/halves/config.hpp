// src/sm90/linear_attention/halves/config.hpp: layouts, barriers and shared memory of linear attention in f32 on
// Hopper, where each number is split into two f16 parts. docs/design/linear_attention.md, "f32 on Hopper", describes
// the kernel.
#pragma once

#include "base/host_device.hpp"
#include "sm90/linear_attention/config.hpp"

namespace falchion::sm90 {

/// Each f32 number is the sum of two f16 parts; three of the four products of parts are computed. Two warps load, two
/// warpgroups (the splitters) split k and v, one warpgroup carries the state, one makes the outputs, and a warp stores.
///
/// At d 64 the splitters split q too, and each warpgroup of them has a tile of its own. At d 128 they have no time for
/// q, and both share each tile, because the registers of one warpgroup could not hold a whole tile.
template <int kD_>
struct LinearHalvesConfig : LinearTiles<cutlass::half_t, kD_> {
  using Half = cutlass::half_t;
  using Tiles = LinearTiles<Half, kD_>;
  using Tiles::kD, Tiles::kChunk, Tiles::kColumns;
  static constexpr LinearTile kTile = linear_halves_tile(kD);
  static constexpr bool kSplitQ = linear_halves_split_q(kD);
  static constexpr int kTerms = 2;
  static constexpr int kStages = kTile.stages;
  static constexpr int kSlots = kTile.slots;
  static constexpr int kTiles = kTile.tiles;
  static constexpr int kCtas = 1;
  static constexpr int kSplitters = 2, kTeams = kSplitQ ? 2 : 1;  // splitter warpgroups; teams that share a tile
  static constexpr int kOutputs = kTile.outputs, kThreads = kTile.threads;
  // Boxes of f32 numbers from memory, in two rings: one for each team at d 64; at d 128 one for the splitters, and one
  // for the output warpgroup, which splits q.
  static constexpr int kBox = 64 * 64;
  static constexpr int kBoxes = 3;
  static constexpr int kAllBoxes = linear_halves_boxes(kD);
  static constexpr int kBoxesOfSecond = kAllBoxes - kBoxes;
  // The registers of a thread: at the launch, and after the roles have redistributed them.
  static constexpr int kRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kRegistersOfMovers = 24;
  static constexpr int kRegistersOfState = 144;
  static constexpr int kRegistersOfOutputs = kSplitQ ? 152 : 168;
  static constexpr int kRegistersOfSplitters = kSplitQ ? 80 : 72;
  static_assert(kRegistersOfState + kRegistersOfOutputs + kSplitters * kRegistersOfSplitters + kRegistersOfMovers <=
                kThreads / 128 * kRegisters);

  // Layouts of one tile, because each stage and each part (term) is addressed separately.
  using LayoutK = typename Tiles::template ByRows<kChunk, kD, 1>;            // (C, E)
  using LayoutKt = typename Tiles::template ByColumns<kChunk, 64, 1>;        // (E, C), 64 rows of E
  using LayoutVt = typename Tiles::template ByColumns<kChunk, kColumns, 1>;  // (M, C)
  using LayoutSt = typename Tiles::template ByColumns<kD, kColumns, 1>;      // (M, E)

  template <int kN, int kK, cute::GMMA::Major kB>
  using Rs = decltype(cute::make_tiled_mma(
      cute::GMMA::rs_op_selector<Half, Half, float, typename Tiles::template ShapeOf<kN, kK>, Tiles::kByK, kB>()));
  using MmaQk = Rs<kChunk, kD, Tiles::kByK>;     // P = Q K^T
  using MmaQs = Rs<kColumns, kD, Tiles::kByMN>;  // O = Q S

  enum Operand { kK, kV, kQ, kOperands };  // what the splitters split

  struct Shared {
    alignas(1024) float box[kAllBoxes][kBox];                          // q, k or v of 64 tokens, 2 x 32 columns
    alignas(1024) Half k[kTerms][kStages][kChunk * kD];                // (C, E); the splitters fill k, v and q
    alignas(1024) Half v[kTerms][kStages][kChunk * kColumns];          // (C, M)
    alignas(1024) Half q[kTerms][kSplitQ ? kChunk * kD : 1];           // (C, E)
    alignas(1024) Half s[kTerms][kSlots][kD * kColumns];               // (E, M), the state before a chunk
    alignas(1024) float o[kTiles][kChunk * kColumns];                  // 64 tokens, 2 x 32 columns
    int exponent[2][kStages], s_exponent[kSlots];                      // n: k, v and S are multiplied by 2^n
    alignas(16) signed char q_exponent[kChunk / 2];                    // n of every two tokens of q
    alignas(16) unsigned largest[kTeams][2][4 * kSplitters / kTeams];  // maxima of a team's warps; two tiles
    alignas(16) unsigned s_largest[4];                                 // maxima of the warps that carry S
    BarrierOfBytes box_full[kAllBoxes];
    Barrier box_empty[kAllBoxes], full[kOperands][kStages], empty[kOperands][kStages];
    Barrier s_full[kSlots], s_empty[kSlots], o_full[kTiles], o_empty[kTiles];
    /// Each barrier gets its number of arriving threads or warps.
    FALCHION_DEVICE void init() {
      constexpr int kWarps = 4 * kSplitters / kTeams;  // of a team
      for (int i = 0; i < kAllBoxes; ++i) {
        box_full[i].init(1);
        box_empty[i].init(i < kBoxes ? kWarps : 4);
      }
      // q is read by the output warpgroup; k and v are read by the warpgroup of the state too.
      for (int i = 0; i < kStages; ++i)
        for (int operand = 0; operand < kOperands; ++operand) {
          full[operand][i].init(kWarps);
          empty[operand][i].init(operand == kQ ? 4 : 4 * 2);
        }
      for (int i = 0; i < kSlots; ++i) {
        s_full[i].init(4);
        s_empty[i].init(4);
      }
      for (int i = 0; i < kTiles; ++i) {
        o_full[i].init(4);
        o_empty[i].init(1);
      }
      cutlass::arch::fence_barrier_init();
    }
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes <= 227 << 10);
};

}  // namespace falchion::sm90
