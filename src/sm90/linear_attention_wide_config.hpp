// src/sm90/linear_attention_wide_config.hpp: layouts, barriers and shared memory of linear attention in f32 on Hopper
// where a CTA has all 128 columns of a head.
#pragma once

#include "blocks/sm90_halves.cuh"
#include "sm90/linear_attention_config.hpp"

namespace falchion::sm90 {

/// f32 as two f16, as linear_attention_halves_config.hpp has it, but q and k are taken apart once a head instead of
/// once for each 64 columns, and S stays in registers: two warpgroups carry 64 columns of it each, transposed, as
/// operand A of O^T = S^T Q^T lies, and make the outputs. Two warpgroups take q, k and v apart, one makes P. There is
/// no sixth that loads or stores: with 768 threads ptxas has 80 registers for each, too few for 64 accumulators.
struct LinearWideConfig : LinearTiles<cutlass::half_t, kLinearWideD, kLinearWideD> {
  using Half = cutlass::half_t;
  using Tiles = LinearTiles<Half, kLinearWideD, kLinearWideD>;
  static constexpr int kTerms = 2, kCtas = 1, kStates = 2, kSplitters = 2, kThreads = 128 * (kStates + 1 + kSplitters);
  // Of each thread: before they are dealt out anew, then.
  static constexpr int kRegisters = 65536 / kThreads / 8 * 8, kRegistersOfState = 144, kRegistersOfScores = 64,
                       kRegistersOfSplitters = 64;
  static_assert(kStates * kRegistersOfState + kRegistersOfScores + kSplitters * kRegistersOfSplitters <=
                kThreads / 128 * kRegisters);

  using LayoutQ = Tiles::ByRows<kChunk, kD, 1>;      // (C, E); of k, too
  using LayoutP = Tiles::ByRows<kChunk, kChunk, 1>;  // (C, C)
  using LayoutKt = Tiles::ByColumns<kChunk, kD, 1>;  // (E, C)
  using LayoutVt = Tiles::ByColumns<kChunk, 64, 1>;  // (M, C), 64 of M

  using MmaQk = Tiles::Ss<kChunk, kD, kByK, kByK>;  // P = Q K^T
  using MmaSq = decltype(cute::make_tiled_mma(      // O^T = S^T Q^T, 64 rows of it
      cute::GMMA::rs_op_selector<Half, Half, float, Tiles::ShapeOf<kChunk, kD>, kByK, kByK>()));
  using MmaVp = Tiles::Ss<kChunk, kChunk, kByMN, kByK>;  // O^T += V^T P^T
  using MmaState = Tiles::Ss<kD, kChunk, kByMN, kByMN>;  // S^T += V^T K

  enum Operand { kQ, kK, kV, kOperands };  // in this order they are taken apart, two boxes each
  static constexpr int kBox = 64 * 64, kPlaces = 4,
                       kStagesOfK = 2;  // so its stage is the parity of rings of one

  struct Shared {
    alignas(1024) float box[kPlaces][kBox];                 // 64 tokens, 2 x 32 columns
    alignas(1024) Half q[kTerms][kChunk * kD];              // (C, E); what the splitters fill
    alignas(1024) Half k[kStagesOfK][kTerms][kChunk * kD];  // (C, E)
    alignas(1024) Half v[kTerms][kChunk * kColumns];        // (C, M)
    union Out {
      float o[kBox];                    // 64 tokens, 2 x 32 columns
      Half p[kTerms][kChunk * kChunk];  // (C, C)
    };
    alignas(1024) Out out[kStates];      // 64 columns of o each; the second ones go where P was
    int exponent_k[2], exponent_v[2];    // of 2, by which they are multiplied; of every other chunk
    int exponent_q[8];                   // of tokens 2n, 2n + 1, and each 16 more
    int exponent_change[2];              // that S has from this chunk on; of every other chunk
    int exponent_added[2];               // by which what this chunk adds to S is multiplied; of every other chunk
    TwoFactors factor_o[2][8];           // by which O of such tokens is; of every other chunk
    alignas(16) unsigned largest[2][8];  // of the splitters' warps, this time and before
    BarrierOfBytes box_full[2 * kOperands];
    Barrier q_full, q_empty, k_full[kStagesOfK], k_empty[kStagesOfK], v_full, v_empty, p_full, p_empty;
    Barrier p_read;  // by both of them; p_empty: its place is
    Barrier known;   // the exponents of k and v
    CUTE_DEVICE void init() {
      constexpr int kWarpsOfState = 4 * kStates, kWarpsOfSplitters = 4 * kSplitters;
      for (auto& barrier : box_full) barrier.init(1);
      for (auto* full : {&q_full, &k_full[0], &k_full[1], &v_full}) full->init(kWarpsOfSplitters);
      for (auto* empty : {&q_empty, &k_empty[0], &k_empty[1]}) empty->init(kWarpsOfState + 4);
      v_empty.init(kWarpsOfState), p_full.init(4), p_empty.init(1), p_read.init(kWarpsOfState), known.init(1);
      cutlass::arch::fence_barrier_init();
    }
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes <= 227 << 10);
};

}  // namespace falchion::sm90
