// src/ladder/gemm/roles.cuh: what steps 11 and 12 share: blocks of threads that stay and take tile after tile, the
// warpgroup that loads, and what it and the two that multiply tell each other. Two blocks are a cluster. Their tiles of
// C stand one below the other, so they need the same tile of B: each loads half of it for both.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <cute/arch/cluster_sm90.hpp>

#include "ladder/gemm/hopper.cuh"

namespace falchion::ladder::gemm::on_gpu {

inline constexpr int kCluster = 2;
inline constexpr int kConsumers = 2;  // warpgroups; one more loads
inline constexpr int kRoleThreads = 128 * (kConsumers + 1);
inline constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
inline constexpr int kBand = 16;  // rows of tiles

/// Pairs of tiles, which are the work of a cluster.
FALCHION_HD int pairs(const Sizes& sizes) { return (sizes.row_tiles + 1) / kCluster * sizes.column_tiles; }

/// Calls f(number, i0, j0) for each tile of this block: number counts its tiles, C's tile begins at (i0, j0).
template <class Tile, class F>
__device__ __forceinline__ void for_each_tile(const Sizes& sizes, const F& f) {
  const int clusters = static_cast<int>(gridDim.x) / kCluster, rank = static_cast<int>(block_rank_in_cluster());
  int number = 0;
  CUTE_NO_UNROLL
  for (int pair = static_cast<int>(blockIdx.x) / kCluster; pair < pairs(sizes); pair += clusters) {
    const TilePlace place =
        place_in_bands<kBand / kCluster>(pair, (sizes.row_tiles + 1) / kCluster, sizes.column_tiles);
    f(number, (place.row * kCluster + rank) * Tile::kRows, place.column * Tile::kColumns);
    ++number;
  }
}

/// Initialises the barriers, and waits until both blocks of the cluster have done so.
template <class Tile>
__device__ __forceinline__ void init_barriers(typename Tile::Ring& ring) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::kStages; ++s) {
      ring.full[s].init(1);
      ring.empty[s].init(kCluster * 4 * Tile::kWarpgroups);  // the warps that read a stage, in both blocks
    }
    cutlass::arch::fence_barrier_init();
  }
  cluster_sync();
}

/// What one thread of the producer does: it loads tiles as far ahead as there are free stages.
template <class Tile>
__device__ __forceinline__ void produce(const TensorMaps& maps, const Sizes& sizes, typename Tile::Ring& ring) {
  constexpr int kOwn = Tile::kBoxesB / kCluster;
  const int first_box = static_cast<int>(block_rank_in_cluster()) * kOwn;
  typename Tile::Position at;
  for_each_tile<Tile>(sizes, [&](int, int i0, int j0) {
    CUTE_NO_UNROLL
    for (int block = 0; block < sizes.blocks; ++block) {
      const int l0 = block * Tile::kDepth;
      ring.empty[at.stage].wait(at.parity ^ 1);  // in the first round it does not wait
      ring.full[at.stage].arrive_and_expect_tx(Tile::kBytes);
      load_a<Tile>(maps, ring, at.stage, i0, l0);
      CUTE_UNROLL
      for (int box = first_box; box < first_box + kOwn; ++box)
        SM90_TMA_LOAD_MULTICAST_4D::copy(&maps.b, reinterpret_cast<std::uint64_t*>(&ring.full[at.stage]),
                                         (1 << kCluster) - 1, sm90::kReadByOthers,
                                         ring.B[at.stage] + box * 64 * Tile::kDepth, j0 + box * 64, 0, l0, 0);
      at.advance();
    }
  });
}

/// Says in both blocks of the cluster that this warp has read the stage.
__device__ __forceinline__ void release(const ClusterBarrier& empty) {
  if (const unsigned lane = threadIdx.x % 32; lane < kCluster) empty.arrive(lane);
}

/// What a consumer does for a tile: C = A B. While one product runs, the next is started.
template <class Tile>
__device__ __forceinline__ void consume(TileProduct<Tile>& product, typename Tile::Ring& ring,
                                        typename Tile::Position& at, int blocks) {
  product.clear();
  int before = 0;
  CUTE_NO_UNROLL
  for (int block = 0; block < blocks; ++block) {
    ring.full[at.stage].wait(at.parity);
    product.start(ring, at.stage);
    product.template wait<1>();
    if (block > 0) release(ring.empty[before]);
    before = at.stage;
    at.advance();
  }
  product.template wait<0>();
  if (blocks > 0) release(ring.empty[before]);
}

using RolesKernel = void (*)(Operands<bf16>, TensorMaps, Sizes);

/// As many clusters as the device can hold, or as there is work for.
template <class Tile>
Status launch_roles(RolesKernel kernel, int shared_bytes, const Problem& p, const Tensors& t, Stream stream) {
  return with_maps<Tile>(p, t, stream,
                         [&](const Operands<bf16>& x, const TensorMaps& maps, const Sizes& sizes) -> Status {
                           int device = 0, sms = 0;
                           cudaError_t error = cudaGetDevice(&device);
                           if (error == cudaSuccess)
                             error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
                           if (error != cudaSuccess) return to_status(error);
                           const int clusters = std::min(sms / kCluster, pairs(sizes));
                           return launch(kernel, dim3(static_cast<unsigned>(clusters * kCluster)), dim3(kRoleThreads),
                                         shared_bytes, stream, x, maps, sizes);
                         });
}

}  // namespace falchion::ladder::gemm::on_gpu
