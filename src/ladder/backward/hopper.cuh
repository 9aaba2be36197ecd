// src/ladder/backward/hopper.cuh: the tiles of step 06, their barriers, and the two warps that compute no products: the
// producer, and the one that adds dQ to its sums.
#pragma once

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tma.cuh"
#include "gpu/blocks/sm90_wgmma.cuh"
#include "ladder/attention/tensor_core.cuh"
#include "ladder/backward/around.cuh"

namespace falchion::ladder::backward::on_gpu {

using namespace ladder::on_gpu;  // SwizzledAtom, and CuTe's names
using ladder::on_gpu::bf16;

/// A block has 128 keys, 64 for each of its two consumers, which are warpgroups. It visits 128 query rows at a time at
/// d 64, and 64 at d 128, so that dQ of a tile is 64 x 64 for each consumer: half of the rows, or half of the columns.
template <int d>
struct HopperTile {
  static constexpr int kD = d, kM = 8192 / kD, kN = 128, kStages = 2;
  static constexpr int kConsumers = 2, kThreads = 128 * (kConsumers + 1);
  static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
  using D = Int<kD>;
  using M = Int<kM>;
  using N = Int<kN>;
  using Stages = Int<kStages>;

  // TMA loads boxes of 64 columns (128 bytes) and all rows of a tile, swizzled as in step 04. A second layout of each
  // reads it transposed.
  static constexpr int kBox = 64, kBoxes = kD / kBox;
  using AtomK = GMMA::Layout_K_SW128_Atom<bf16>;
  using AtomT = GMMA::Layout_MN_SW128_Atom<bf16>;
  using LayoutK = decltype(tile_to_shape(AtomK{}, Shape<N, D>{}));                                     // of V too
  using LayoutKt = decltype(tile_to_shape(AtomT{}, Shape<D, N>{}, cute::Step<_2, _1>{}));              // (D, N)
  using LayoutQ = decltype(tile_to_shape(AtomK{}, Shape<M, D, Stages>{}));                             // of dO too
  using LayoutQt = decltype(tile_to_shape(AtomT{}, Shape<D, M, Stages>{}, cute::Step<_2, _1, _3>{}));  // of dO too
  using LayoutDs = decltype(tile_to_shape(AtomK{}, Shape<M, N, Stages>{}));                            // (M, N)
  // The sums of dQ are f32: 32 columns are 128 bytes, and piece c of row r lies at c ^ r.
  static constexpr int kSumBox = 32, kSumBoxes = kD / kSumBox;
  using SumAtom = decltype(composition(Swizzle<3, 2, 3>{}, Layout<Shape<_8, _32>, Stride<_32, _1>>{}));
  using LayoutDq = decltype(tile_to_shape(SumAtom{}, Shape<M, D>{}));

  // S^T and dP^T have keys as rows. So P^T and dS^T are operand A of dV and dK in the registers where they were made.
  using ByKeys = Layout<Shape<Int<kConsumers>, _1, _1>>;
  using MmaScores = decltype(make_tiled_mma(
      GMMA::ss_op_selector<bf16, bf16, float, Shape<N, M, D>, GMMA::Major::K, GMMA::Major::K>(), ByKeys{}));
  using MmaKeys = decltype(make_tiled_mma(
      GMMA::rs_op_selector<bf16, bf16, float, Shape<N, D, M>, GMMA::Major::K, GMMA::Major::MN>(), ByKeys{}));
  using MmaRows = decltype(make_tiled_mma(
      GMMA::ss_op_selector<bf16, bf16, float, Shape<M, _64, N>, GMMA::Major::K, GMMA::Major::MN>(),
      Layout<Shape<Int<kM / 64>, Int<kD / 64>, _1>>{}));

  /// `full`: the bytes have arrived. `empty`: the 4 warps of each consumer have read them. dQ goes the other way: the
  /// warps of the consumers fill it.
  struct Shared {
    alignas(1024) bf16 K[kN * kD];
    alignas(1024) bf16 V[kN * kD];
    alignas(1024) bf16 Q[kStages][kM * kD];
    alignas(1024) bf16 dO[kStages][kM * kD];
    alignas(1024) bf16 dS[kStages][kM * kN];
    alignas(1024) float dQ[kM * kD];
    alignas(16) float lse[kStages][kM], delta[kStages][kM];
    sm90::BarrierOfBytes full_keys, full_rows[kStages];
    sm90::Barrier empty_rows[kStages], full_dq, empty_dq;
  };
  using Position = sm90::RingPosition<kStages>;
};

struct TensorMaps {
  CUtensorMap q, k, v, grad_o, grad_q;
};

/// The key tile of a block of threads, and the query rows that it visits.
template <class Tile>
struct KeyBlock {
  int k0, bh, first;
  __device__ explicit KeyBlock(const Problem& p)
      : k0(blockIdx.x * Tile::kN), bh(blockIdx.y), first(first_row(p, k0) / Tile::kM * Tile::kM) {}
};

/// Initialises the barriers: one thread does it, and then all threads see them.
template <class Tile>
FALCHION_DEVICE void init_barriers(typename Tile::Shared& shared) {
  constexpr int kWarps = 4 * Tile::kConsumers;
  if (threadIdx.x == 0) {
    shared.full_keys.init(2);  // K and V
    for (int i = 0; i < Tile::kStages; ++i) {
      shared.full_rows[i].init(4);  // Q, dO, lse and D
      shared.empty_rows[i].init(kWarps);
    }
    shared.full_dq.init(kWarps);
    shared.empty_dq.init(1);
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
}

/// load, which one thread of the producer does: K and V once, and Q, dO and the statistics of each tile of rows, as far
/// ahead as there are free stages. TMA writes 0 past the end.
template <class Tile>
FALCHION_DEVICE void produce(const Problem& p, const TensorMaps& maps, const Sums& sums, const KeyBlock<Tile>& t,
                             typename Tile::Shared& shared) {
  if (t.first >= p.s_q) return;
  const int head = t.bh % p.h, batch = t.bh / p.h;
  const auto load = [&](const CUtensorMap& map, auto& full, auto& to, int row) {
    sm90::load_boxes<Tile::kBoxes, Tile::kBox>(map, full, to, sm90::kReadAgain, head, row, batch);
  };
  load(maps.k, shared.full_keys, shared.K, t.k0);
  load(maps.v, shared.full_keys, shared.V, t.k0);
  typename Tile::Position at;
  CUTE_NO_UNROLL
  for (int q0 = t.first; q0 < p.s_q; q0 += Tile::kM, at.advance()) {
    auto& full = shared.full_rows[at.stage];
    shared.empty_rows[at.stage].wait(at.parity ^ 1);  // in the first round it does not wait
    load(maps.q, full, shared.Q[at.stage], q0);
    load(maps.grad_o, full, shared.dO[at.stage], q0);
    const std::int64_t row = std::int64_t{t.bh} * padded_rows(p) + q0;
    const auto load_statistic = [&](const float* from, auto& to) {
      full.arrive_and_expect_tx(sizeof(to));
      SM90_BULK_COPY_G2S::copy(from + row, reinterpret_cast<std::uint64_t*>(&full), to, sizeof(to));
    };
    load_statistic(sums.lse, shared.lse[at.stage]);
    load_statistic(sums.delta, shared.delta[at.stage]);
  }
}

/// Adds each tile of dQ to the sums, which one thread of another warp does. TMA adds boxes as it copies them, in the
/// L2, in whatever order the blocks come, and leaves out rows past the end.
template <class Tile>
FALCHION_DEVICE void add_to_sums(const Problem& p, const TensorMaps& maps, const KeyBlock<Tile>& t,
                                 typename Tile::Shared& shared) {
  unsigned parity = 0;
  CUTE_NO_UNROLL
  for (int q0 = t.first; q0 < p.s_q; q0 += Tile::kM, parity ^= 1) {
    shared.full_dq.wait(parity);
    CUTE_UNROLL
    for (int i = 0; i < Tile::kSumBoxes; ++i)
      SM90_TMA_REDUCE_ADD_4D::copy(&maps.grad_q, shared.dQ + i * Tile::kM * Tile::kSumBox, Tile::kSumBox * i,
                                   t.bh % p.h, q0, t.bh / p.h);
    tma_store_arrive();
    tma_store_wait<0>();  // it has been read
    shared.empty_dq.arrive();
  }
}

/// Makes the tensor maps, which tell TMA beforehand where a tensor lies and how a box of it is swizzled.
template <class Tile>
cudaError_t make_maps(const Problem& p, const Tensors& t, const Sums& sums, TensorMaps* maps) {
  const std::int64_t row = std::int64_t{p.h} * p.d;
  const auto make = [&]<class Element>(CUtensorMap* map, const Element* x, std::int64_t s, int columns, int rows) {
    return sm90::make_tensor_map<Element>(map, View{const_cast<Element*>(x), {s * row, row, p.d, 1}},
                                          sm90::TensorBox{p.b, s, p.h, p.d, columns, 1, rows}, t.grad_k);
  };
  const auto make_input = [&](CUtensorMap* map, const void* x, std::int64_t s, int rows) {
    return make(map, static_cast<const bf16*>(x), s, Tile::kBox, rows);
  };
  for (const cudaError_t error :
       {make_input(&maps->q, t.q, p.s_q, Tile::kM), make_input(&maps->grad_o, t.grad_o, p.s_q, Tile::kM),
        make_input(&maps->k, t.k, p.s_k, Tile::kN), make_input(&maps->v, t.v, p.s_k, Tile::kN),
        make(&maps->grad_q, sums.grad_q, p.s_q, Tile::kSumBox, Tile::kM)})
    if (error != cudaSuccess) return error;
  return cudaSuccess;
}

}  // namespace falchion::ladder::backward::on_gpu
