// src/ladder/attention/hopper.cuh: what steps 07 to 09 share: tiles and barriers in shared memory, the producer that
// fills the tiles, and the products, softmax and store of a consumer. These steps differ only in the order in which a
// consumer does these things. Step 10 has the tiles, the barriers and the scores from here.
#pragma once

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>

#include "base/host_device.hpp"
#include "gpu/blocks/sm90_tma.cuh"
#include "gpu/blocks/sm90_wgmma.cuh"
#include "ladder/attention/tensor_core.cuh"

namespace falchion::ladder::on_gpu {

using cutlass::arch::ClusterBarrier;
using cutlass::arch::ClusterTransactionBarrier;
using cutlass::arch::NamedBarrier;

/// Room for the kStages tiles of K or V. `full` says that the bytes of a tile have arrived. `empty` says that the 4
/// warps of each consumer have read it.
template <class Element, int kSize, int kStages>
struct Ring {
  alignas(1024) Element tile[kStages][kSize];
  ClusterTransactionBarrier full[kStages];
  ClusterBarrier empty[kStages];
};

/// There are two consumers, which are warpgroups of 128 threads with 64 query rows each, and a producer. A thread
/// starts with 168 registers (65536 / 384, rounded down to a multiple of 8). Once the roles are known, the registers
/// are redistributed.
template <int d>
struct HopperTile {
  static constexpr int kD = d, kM = 128, kN = 128, kStages = 2;
  static constexpr int kConsumers = 2;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
  using D = Int<kD>;
  using M = Int<kM>;
  using N = Int<kN>;
  using Stages = Int<kStages>;

  // TMA loads boxes of 64 columns (128 bytes) and all rows of a tile. They are swizzled as in step 05: piece c of row r
  // lies at c ^ (r % 8). V is not transposed in memory; a layout of its own reads it transposed.
  static constexpr int kBox = 64;
  static constexpr int kBoxes = kD / kBox;
  using AtomK = GMMA::Layout_K_SW128_Atom<bf16>;                            // 8 rows of a box
  using AtomT = GMMA::Layout_MN_SW128_Atom<bf16>;                           // the same, transposed
  using LayoutQ = decltype(tile_to_shape(AtomK{}, Shape<M, D>{}));          // (M, D)
  using LayoutK = decltype(tile_to_shape(AtomK{}, Shape<N, D, Stages>{}));  // (N, D, stages)
  using LayoutVt =                                                          // (D, N, stages)
      decltype(tile_to_shape(AtomT{}, Shape<D, N, Stages>{}, cute::Step<_2, _1, _3>{}));

  // wgmma multiplies 64 x N x 16 with one instruction of a warpgroup. It reads operand B, and for S operand A too, from
  // where they lie in shared memory.
  using Warpgroups = Layout<Shape<Int<kConsumers>, _1, _1>>;
  using MmaQk = decltype(make_tiled_mma(
      GMMA::ss_op_selector<bf16, bf16, float, Shape<M, N, D>, GMMA::Major::K, GMMA::Major::K>(), Warpgroups{}));
  using MmaPv = decltype(make_tiled_mma(
      GMMA::rs_op_selector<bf16, bf16, float, Shape<M, D, N>, GMMA::Major::K, GMMA::Major::MN>(), Warpgroups{}));

  struct Shared {
    alignas(1024) bf16 Q[kM * kD];
    Ring<bf16, kN * kD, kStages> K, V;
    ClusterTransactionBarrier full_Q;
  };
  using Position = sm90::RingPosition<kStages>;
};

struct TensorMaps {
  CUtensorMap q, k, v;
};

/// The query tile of a block of threads, and the keys that it visits.
template <class Tile>
struct QueryTile {
  int q0, bh, end, unmasked_end;
  __device__ explicit QueryTile(const Problem& p) : q0(blockIdx.x * Tile::kM), bh(blockIdx.y) {
    const int q1 = min(q0 + Tile::kM, p.s_q);
    end = static_cast<int>(p.mask().visible(q0, q1).end);
    unmasked_end = static_cast<int>(p.mask().unmasked(q0, q1).end);
  }
};

/// Initialises the barriers: one thread does it, and then all threads see them.
template <class Tile>
FALCHION_DEVICE void init_barriers(typename Tile::Shared& shared) {
  if (threadIdx.x == 0) {
    shared.full_Q.init(1);
    const auto init = [](auto& ring) {
      for (int i = 0; i < Tile::kStages; ++i) {
        ring.full[i].init(1);
        ring.empty[i].init(4 * Tile::kConsumers);
      }
    };
    init(shared.K);
    init(shared.V);
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
}

/// load, which one thread of the producer does: Q, then K and V of each tile, as far ahead as there are free stages. V
/// of a tile is asked for after K of the next tile, because S of the next tile is what the consumers need first. TMA
/// writes 0 past the end.
template <class Tile>
FALCHION_DEVICE void produce(const Problem& p, const TensorMaps& maps, const QueryTile<Tile>& t,
                             typename Tile::Shared& shared) {
  if (t.end <= 0) return;
  const int head = t.bh % p.h, batch = t.bh / p.h;
  typename Tile::Position at_k, at_v;
  const auto load = [&](auto& ring, typename Tile::Position& at, const CUtensorMap& map, int k0) {
    ring.empty[at.stage].wait(at.parity ^ 1);  // in the first round it does not wait
    sm90::load_boxes<Tile::kBoxes, Tile::kBox>(map, ring.full[at.stage], ring.tile[at.stage], sm90::kReadAgain, head,
                                               k0, batch);
    at.advance();
  };
  sm90::load_boxes<Tile::kBoxes, Tile::kBox>(maps.q, shared.full_Q, shared.Q, sm90::kReadOnce, head, t.q0, batch);
  load(shared.K, at_k, maps.k, 0);
  CUTE_NO_UNROLL
  for (int k0 = 0; k0 < t.end; k0 += Tile::kN) {
    if (k0 + Tile::kN < t.end) load(shared.K, at_k, maps.k, k0 + Tile::kN);
    load(shared.V, at_v, maps.v, k0);
  }
}

/// A fragment of wgmma, ((2, 2, N / 8), 1, 1), seen as (rows, columns) of this thread.
template <class Fragment>
FALCHION_DEVICE auto wgmma_rows_and_columns(Fragment& x) {
  const auto l = x.layout();
  return make_tensor(x.data(), make_layout(get<0, 1>(l), make_layout(get<0, 0>(l), get<0, 2>(l))));
}

/// S of a consumer, a warpgroup. The steps give the order. start_ starts a product, which then runs asynchronously; no
/// code may touch its result before wait_. kBehind is the number of products started after it that may still be
/// running.
template <class Tile>
class ScoresOfConsumer {
 public:
  FALCHION_DEVICE ScoresOfConsumer(const Problem& p, const QueryTile<Tile>& t, typename Tile::Shared& shared,
                                   int warpgroup)
      : p(p), t(t), shared(shared), warpgroup(warpgroup) {}

  FALCHION_DEVICE void wait_q() const { shared.full_Q.wait(0); }
  FALCHION_DEVICE void wait_k() const { shared.K.full[at_k.stage].wait(at_k.parity); }
  FALCHION_DEVICE void wait_v() const { shared.V.full[at_v.stage].wait(at_v.parity); }

  FALCHION_DEVICE void start_s() {                                                           // S = Q K^T
    const auto sQ = make_tensor(make_smem_ptr(shared.Q), typename Tile::LayoutQ{});          // (M, D)
    const auto sK = make_tensor(make_smem_ptr(shared.K.tile[0]), typename Tile::LayoutK{});  // (N, D, stages)
    const auto mma = typename Tile::MmaQk{};
    const auto slice = mma.get_slice(warpgroup * 128);
    const auto rQ = slice.partition_fragment_A(sQ);  // (1, 1, D / 16) descriptors; of 8 bits D / 32, here and below
    const auto rK = slice.partition_fragment_B(sK);  // (1, 1, D / 16, stages) descriptors
    sm90::start_multiply<true>(mma, rQ, rK(_, _, _, at_k.stage), rS);
  }
  /// When S is done, K is not read any more, so its stage is released.
  template <int kBehind>
  FALCHION_DEVICE void wait_s() {
    sm90::wait_multiply<kBehind>(rS);
    release(shared.K.empty[at_k.stage]);
    at_k.advance();
  }
  /// mask.keep
  FALCHION_DEVICE void keep(int k0) {
    if (k0 + Tile::kN > t.unmasked_end)
      apply_mask(rS, coordinates(typename Tile::MmaQk{}, Shape<typename Tile::M, typename Tile::N>{}), p.mask(), t.q0,
                 k0);
  }

 protected:
  /// Returns (row, column) in the tile for each of this thread's elements of a result.
  template <class Mma, class Shape>
  static FALCHION_DEVICE auto coordinates(Mma mma, Shape shape) {
    return mma.get_slice(threadIdx.x).partition_C(make_identity_tensor(shape));
  }
  static FALCHION_DEVICE void release(ClusterBarrier& empty) {
    if (threadIdx.x % 32 == 0) empty.arrive();
  }

  decltype(partition_fragment_C(typename Tile::MmaQk{}, Shape<typename Tile::M, typename Tile::N>{})) rS;  // (64, N)
  typename Tile::Position at_k, at_v;

  const Problem& p;
  const QueryTile<Tile>& t;
  typename Tile::Shared& shared;
  const int warpgroup;
};

/// All that a consumer does.
template <class Tile>
class Consumer : public ScoresOfConsumer<Tile> {
  using Scores = ScoresOfConsumer<Tile>;
  using Scores::at_v, Scores::p, Scores::rS, Scores::shared, Scores::t, Scores::warpgroup;

 public:
  FALCHION_DEVICE Consumer(const Problem& p, const QueryTile<Tile>& t, typename Tile::Shared& shared, int warpgroup)
      : Scores(p, t, shared, warpgroup) {
    clear(rO);
  }

  FALCHION_DEVICE void start_o() {                                                             // O += P V
    const auto sVt = make_tensor(make_smem_ptr(shared.V.tile[0]), typename Tile::LayoutVt{});  // (D, N, stages)
    const auto mma = typename Tile::MmaPv{};
    const auto rV = mma.get_slice(warpgroup * 128).partition_fragment_B(sVt);  // (1, 1, N / 16, stages) descriptors
    stage_v = at_v.stage;
    at_v.advance();
    sm90::start_multiply<false>(mma, sm90::as_wgmma_operand_a(rP), rV(_, _, _, stage_v), rO);
  }
  template <int kBehind>
  FALCHION_DEVICE void wait_o() {
    sm90::wait_multiply<kBehind>(rO);
    Scores::release(shared.V.empty[stage_v]);
  }

  /// softmax.update: replaces S by P. shrink is what O must be multiplied by.
  FALCHION_DEVICE void update() {
    auto S = wgmma_rows_and_columns(rS);
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) shrink[r] = softmax.update_row(S, r, p.scale * float(M_LOG2E));
  }
  FALCHION_DEVICE void scale_rows() {
    auto O = wgmma_rows_and_columns(rO);
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) scale_row(O, r, shrink[r]);
  }
  /// Rounds P to bf16. Operand A wants it in the order in which S came.
  FALCHION_DEVICE void round() {
    CUTE_UNROLL
    for (int i = 0; i < size(rS) / 2; ++i)
      recast<__nv_bfloat162>(rP)(i) = __float22bfloat162_rn(recast<const float2>(rS)(i));
  }

  /// finish, store
  FALCHION_DEVICE void store_o(bf16* o) {
    const auto cO = Scores::coordinates(typename Tile::MmaPv{}, Shape<typename Tile::M, typename Tile::D>{});
    store(wgmma_rows_and_columns(rO), wgmma_rows_and_columns(cO), softmax, head_of(p, o, p.s_q, t.bh), t.q0, p.s_q);
  }

 private:
  decltype(partition_fragment_C(typename Tile::MmaPv{}, Shape<typename Tile::M, typename Tile::D>{})) rO;  // (64, D)
  decltype(make_tensor<bf16>(Layout<Int<Tile::kN / 2>>{})) rP;                                             // (64, N)
  OnlineSoftmax<2> softmax;
  float shrink[2];
  int stage_v = 0;
};

/// From step 08 on the consumers take turns in starting products. sync waits for 256 threads: the 128 of this
/// consumer, and the 128 of the other, which arrive when they pass the turn, without waiting.
FALCHION_DEVICE void take_turn(int warpgroup) { NamedBarrier::sync(256, warpgroup); }
FALCHION_DEVICE void pass_turn(int warpgroup) { NamedBarrier::arrive(256, 1 - warpgroup); }

using HopperKernel = void (*)(Problem, TensorMaps, bf16*);

/// Makes the tensor maps, which tell TMA beforehand all that it needs: where a tensor lies and how a box of it is
/// swizzled. Then launches the kernel.
template <class Tile>
Status launch_roles(HopperKernel kernel, const Problem& p, const Tensors& t, Stream stream) {
  if (p.s_q == 0 || p.b * p.h == 0) return {};
  TensorMaps maps;
  const auto make = [&](CUtensorMap* map, const void* x, std::int64_t s, int rows) {
    const std::int64_t row = std::int64_t{p.h} * p.d;
    return sm90::make_tensor_map<bf16>(map, View{const_cast<void*>(x), {s * row, row, p.d, 1}},
                                       sm90::TensorBox{p.b, s, p.h, p.d, Tile::kBox, 1, rows}, t.o);
  };
  for (const cudaError_t error :
       {make(&maps.q, t.q, p.s_q, Tile::kM), make(&maps.k, t.k, p.s_k, Tile::kN), make(&maps.v, t.v, p.s_k, Tile::kN)})
    if (error != cudaSuccess) return to_status(error);
  return launch(kernel, dim3(divide_up(p.s_q, Tile::kM), p.b * p.h), dim3(Tile::kThreads),
                sizeof(typename Tile::Shared), stream, p, maps, static_cast<bf16*>(t.o));
}

}  // namespace falchion::ladder::on_gpu
