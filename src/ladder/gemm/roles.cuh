// src/ladder/gemm/roles.cuh: what steps 11 to 13 share: blocks of threads that stay and take tile after tile, the
// warpgroup that loads, and what it and the two that multiply tell each other. Two blocks are a cluster. Their tiles of
// C stand one below the other, so they need the same tile of B: each loads half of it for both.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <algorithm>

#include <cute/arch/cluster_sm90.hpp>

#include "base/host_device.hpp"
#include "ladder/gemm/hopper.cuh"

namespace falchion::ladder::gemm::on_gpu {

inline constexpr int kCluster = 2;
inline constexpr int kConsumers = 2;  // warpgroups; one more loads
inline constexpr int kRoleThreads = 128 * (kConsumers + 1);
inline constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
inline constexpr int kBand = 16;           // rows of tiles
inline constexpr int kMostClusters = 128;  // no device has more than 256 multiprocessors

/// Pairs of tiles, which are the work of a cluster.
FALCHION_HD int pairs(const Sizes& sizes) { return (sizes.row_tiles + 1) / kCluster * sizes.column_tiles; }
FALCHION_DEVICE int cluster_number() { return static_cast<int>(blockIdx.x) / kCluster; }
FALCHION_DEVICE int clusters() { return static_cast<int>(gridDim.x) / kCluster; }

/// This block's tile of a pair, which begins at (i0, j0) of C, and the products [first, end) that it is to add up.
struct Work {
  int i0, j0, first, end;
};
template <class Tile>
FALCHION_DEVICE Work work_of(const Sizes& sizes, int pair, int first, int end) {
  const TilePlace place = place_in_bands<kBand / kCluster>(pair, (sizes.row_tiles + 1) / kCluster, sizes.column_tiles);
  const int rank = static_cast<int>(block_rank_in_cluster());
  return {(place.row * kCluster + rank) * Tile::kRows, place.column * Tile::kColumns, first, end};
}

/// Calls f(work) for each tile of this block.
template <class Tile, class F>
FALCHION_DEVICE void for_each_tile(const Sizes& sizes, const F& f) {
  CUTE_NO_UNROLL
  for (int pair = cluster_number(); pair < pairs(sizes); pair += clusters())
    f(work_of<Tile>(sizes, pair, 0, sizes.blocks));
}

/// Initialises the barriers, and waits until both blocks of the cluster have done so.
template <class Tile>
FALCHION_DEVICE void init_barriers(typename Tile::Ring& ring) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < Tile::kStages; ++s) {
      ring.full[s].init(1);
      ring.empty[s].init(kCluster * 4 * Tile::kWarpgroups);  // the warps that read a stage, in both blocks
    }
    cutlass::arch::fence_barrier_init();
  }
  cluster_sync();
}

/// What one thread of the producer does: it loads tiles as far ahead as there are free stages. walk(f) calls f(work)
/// for all that this block computes.
template <class Tile, class Walk>
FALCHION_DEVICE void produce(const TensorMaps& maps, typename Tile::Ring& ring, const Walk& walk) {
  constexpr int kOwn = Tile::kBoxesB / kCluster;
  const int first_box = static_cast<int>(block_rank_in_cluster()) * kOwn;
  typename Tile::Position at;
  walk([&](const Work& work) {
    CUTE_NO_UNROLL
    for (int l0 = work.first * Tile::kDepth; l0 < work.end * Tile::kDepth; l0 += Tile::kDepth) {
      ring.empty[at.stage].wait(at.parity ^ 1);  // in the first round it does not wait
      ring.full[at.stage].arrive_and_expect_tx(Tile::kBytes);
      load_a<Tile>(maps, ring, at.stage, work.i0, l0);
      CUTE_UNROLL
      for (int box = first_box; box < first_box + kOwn; ++box)
        SM90_TMA_LOAD_MULTICAST_4D::copy(&maps.b, reinterpret_cast<std::uint64_t*>(&ring.full[at.stage]),
                                         (1 << kCluster) - 1, sm90::kReadByOthers,
                                         ring.B[at.stage] + box * 64 * Tile::kDepth, work.j0 + box * 64, 0, l0, 0);
      at.advance();
    }
  });
}

/// Says in both blocks of the cluster that this warp has read the stage.
FALCHION_DEVICE void release(const ClusterBarrier& empty) {
  if (const unsigned lane = threadIdx.x % 32; lane < kCluster) empty.arrive(lane);
}

/// What a consumer does for a tile: C = A B, of so many stages. While one product runs, the next is started. started()
/// is called when the last one has been.
template <class Tile, class Started>
FALCHION_DEVICE void consume(TileProduct<Tile>& product, typename Tile::Ring& ring, typename Tile::Position& at,
                             int blocks, const Started& started) {
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
  started();
  product.template wait<0>();
  if (blocks > 0) release(ring.empty[before]);
}

/// How many clusters of a kernel the device can hold at a time.
template <class Kernel>
cudaError_t count_clusters(Kernel kernel, int shared_bytes, int* clusters) {
  cudaLaunchAttribute of_two{};
  of_two.id = cudaLaunchAttributeClusterDimension;
  of_two.val.clusterDim.x = kCluster;
  of_two.val.clusterDim.y = of_two.val.clusterDim.z = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(kCluster * kMostClusters);
  launch.blockDim = dim3(kRoleThreads);
  launch.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  launch.attrs = &of_two;
  launch.numAttrs = 1;
  const cudaError_t error = allow_shared(kernel, shared_bytes);
  return error != cudaSuccess ? error : cudaOccupancyMaxActiveClusters(clusters, kernel, &launch);
}

/// Launches as many clusters as fit on the device, which stay until all tiles are done. `more` are further arguments of
/// the kernel.
template <class Tile, class... More>
Status launch_roles(void (*kernel)(Operands<bf16>, TensorMaps, Sizes, More...), int shared_bytes, const Problem& p,
                    const Tensors& t, Stream stream, const More&... more) {
  const auto run = [&](const Operands<bf16>& x, const TensorMaps& maps, const Sizes& sizes) -> Status {
    int clusters = 0;
    if (const cudaError_t error = count_clusters(kernel, shared_bytes, &clusters); error != cudaSuccess)
      return to_status(error);
    return launch(kernel, dim3(static_cast<unsigned>(std::min(clusters, kMostClusters) * kCluster)), dim3(kRoleThreads),
                  shared_bytes, stream, x, maps, sizes, more...);
  };
  return with_maps<Tile>(p, t, stream, run);
}

}  // namespace falchion::ladder::gemm::on_gpu
