// src/sm90/linear_attention/wide/config.hpp: layouts, barriers and shared memory of linear attention in f32 on Hopper
// in wide CTAs, which have all 128 columns of a head. docs/design/linear_attention.md, "Wide: all 128 columns of a head
// in one CTA", describes the kernel.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_halves.cuh"
#include "sm90/linear_attention/config.hpp"

namespace falchion::sm90 {

/// Each f32 number is split into two f16 parts as in linear_attention/halves/config.hpp. But q and k are split once for
/// a head instead of once for each 64 columns, and S stays in registers: two warpgroups carry 64 columns of S each,
/// transposed, in the layout of operand A of O^T = S^T Q^T, and make the outputs. Two warpgroups split q, k and v, and
/// one makes P. There is no sixth warpgroup that loads or stores: with 768 threads a thread has at most 80 registers,
/// too few for 64 accumulators.
struct LinearWideConfig : LinearTiles<cutlass::half_t, kLinearWideD, kLinearWideD> {
  using Half = cutlass::half_t;
  using Tiles = LinearTiles<Half, kLinearWideD, kLinearWideD>;
  static constexpr int kTerms = 2;
  static constexpr int kCtas = 1;
  static constexpr int kStates = 2;
  static constexpr int kSplitters = 2;
  static constexpr int kThreads = 128 * (kStates + 1 + kSplitters);
  // The registers of a thread: at the launch, and after the roles have redistributed them.
  static constexpr int kRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kRegistersOfState = 144;
  static constexpr int kRegistersOfScores = 64;
  static constexpr int kRegistersOfSplitters = 64;
  static_assert(kStates * kRegistersOfState + kRegistersOfScores + kSplitters * kRegistersOfSplitters <=
                kThreads / 128 * kRegisters);

  using LayoutQ = Tiles::ByRows<kChunk, kD, 1>;      // (C, E); for k, too
  using LayoutP = Tiles::ByRows<kChunk, kChunk, 1>;  // (C, C)
  using LayoutKt = Tiles::ByColumns<kChunk, kD, 1>;  // (E, C)
  using LayoutVt = Tiles::ByColumns<kChunk, 64, 1>;  // (M, C), 64 rows of M

  using MmaQk = Tiles::Ss<kChunk, kD, kByK, kByK>;  // P = Q K^T
  using MmaSq = decltype(cute::make_tiled_mma(      // O^T = S^T Q^T, 64 rows of O^T
      cute::GMMA::rs_op_selector<Half, Half, float, Tiles::ShapeOf<kChunk, kD>, kByK, kByK>()));
  using MmaVp = Tiles::Ss<kChunk, kChunk, kByMN, kByK>;  // O^T += V^T P^T
  using MmaState = Tiles::Ss<kD, kChunk, kByMN, kByMN>;  // S^T += V^T K

  enum Operand { kQ, kK, kV, kOperands };  // the splitters split them in this order, two boxes each
  // k has two stages, so the number of its stage is also the parity of all rings that have one stage.
  static constexpr int kBox = 64 * 64, kPlaces = 4, kStagesOfK = 2;

  struct Shared {
    alignas(1024) float box[kPlaces][kBox];                 // 64 tokens, 2 x 32 columns
    alignas(1024) Half q[kTerms][kChunk * kD];              // (C, E); the splitters fill q, k and v
    alignas(1024) Half k[kStagesOfK][kTerms][kChunk * kD];  // (C, E)
    alignas(1024) Half v[kTerms][kChunk * kColumns];        // (C, M)
    union Out {
      float o[kBox];                    // 64 tokens, 2 x 32 columns
      Half p[kTerms][kChunk * kChunk];  // (C, C)
    };
    alignas(1024) Out out[kStates];  // 64 columns of o each; P is in out[1], so the second columns go where P was
    // Exponents of powers of two that numbers are multiplied by. Arrays of [2] serve even and odd chunks.
    int exponent_k[2], exponent_v[2];
    int exponent_q[8];                   // entry n is for tokens 2n and 2n + 1, and for those 16, 32 and 48 further on
    int exponent_change[2];              // the change of S's exponent at this chunk
    int exponent_added[2];               // of the factor of V^T K of this chunk, before it is added to S
    TwoFactors factor_o[2][8];           // the factors of O, for the same tokens as exponent_q
    alignas(16) unsigned largest[2][8];  // maxima of the splitters' warps; two tiles
    BarrierOfBytes box_full[2 * kOperands];
    Barrier q_full, q_empty, k_full[kStagesOfK], k_empty[kStagesOfK], v_full, v_empty, p_full, p_empty;
    Barrier p_read;  // both state warpgroups have read P; p_empty comes later, when the o in its place has been stored
    Barrier known;   // the exponents of k and v can be read
    /// Each barrier gets its number of arriving threads or warps.
    FALCHION_DEVICE void init() {
      constexpr int kWarpsOfState = 4 * kStates, kWarpsOfSplitters = 4 * kSplitters;
      for (auto& barrier : box_full) barrier.init(1);
      for (auto* full : {&q_full, &k_full[0], &k_full[1], &v_full}) full->init(kWarpsOfSplitters);
      for (auto* empty : {&q_empty, &k_empty[0], &k_empty[1]}) empty->init(kWarpsOfState + 4);
      v_empty.init(kWarpsOfState);
      p_full.init(4);
      p_empty.init(1);
      p_read.init(kWarpsOfState);
      known.init(1);
      cutlass::arch::fence_barrier_init();
    }
  };
  static constexpr int kSharedBytes = static_cast<int>(sizeof(Shared));
  static_assert(kSharedBytes <= 227 << 10);
};

}  // namespace falchion::sm90
