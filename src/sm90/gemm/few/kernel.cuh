// src/sm90/gemm/few/kernel.cuh: the variants of kind `few`, for few rows of A, where reading B takes the time. A and B
// change places: the rows of the product in a CTA are rows of B, so that no tile is mostly empty, and its columns are
// the rows of A. Each CTA of a cluster has a part of k, and they add up their sums in shared memory.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/cluster_launch.cuh"
#include "sm90/gemm/few/store.cuh"
#include "sm90/gemm/maps.cuh"

namespace falchion::sm90 {

/// One consumer warpgroup.
template <class Config>
FALCHION_DEVICE void consume(const GemmArgs& a, const PlaceInCluster& place, typename Config::Shared& shared,
                             int warpgroup) {
  using Mma = typename Config::Mma;
  const auto sB = make_tensor(make_smem_ptr(shared.b[0]), typename Config::LayoutB{});  // (columns of D, K, stages)
  const auto sA = make_tensor(make_smem_ptr(shared.a[0]), typename Config::LayoutA{});  // (rows of D, K, stages)
  const auto slice = Mma{}.get_slice(warpgroup * 128);
  const auto rB = slice.partition_fragment_A(sB);  // (1, 1, K / 16, stages)
  const auto rA = slice.partition_fragment_B(sA);  // (1, 1, K / 16, stages)
  auto sums = partition_fragment_C(Mma{}, Shape<Int<Config::kColumns>, Int<Config::kWidth>>{});  // (64, width) f32
  const GemmFewPart part = GemmFewPart::of(a, place.rank, place.ctas);

  RingPosition<Config::kStages> at;
  int turn = 0;
  for (TilesOfCluster tiles(a, place); tiles.more(); ++turn) {
    const GemmFewTile t = tiles.next();
    clear(sums);
    for (std::int64_t k = part.k0; k < part.k1; k += Config::kDepth) {
      shared.full[at.stage].wait(at.parity);
      // sums += B A^T, of one block of k
      start_multiply<false>(Mma{}, rB(_, _, _, at.stage), rA(_, _, _, at.stage), sums);
      // A product of 128 columns takes some 0.1 us, loading its bytes 0.65 us. So it is waited for at once, and its
      // stage is free for the next load as early as possible.
      wait_multiply<0>(sums);
      if (threadIdx.x % 128 == 0) shared.empty[at.stage].arrive();
      at.advance();
    }
    store_tile<Config>(a, t, place, shared, turn, sums);
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    gemm(const __grid_constant__ GemmArgs a, const __grid_constant__ GemmFewMaps maps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  let_next_kernel_start();
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  const PlaceInCluster place = place_in_cluster();
  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) {
      shared.full[i].init(1);
      shared.empty[i].init(Config::kConsumers);
    }
    init_cluster_barrier(&shared.written, place.ctas);
    init_cluster_barrier(&shared.read, Config::kConsumerWarps * place.ctas);
    cutlass::arch::fence_barrier_init();
  } else if (threadIdx.x == 128 * Config::kConsumers && a.k > 0) {
    cute::prefetch_tma_descriptor(&maps.b);
    cute::prefetch_tma_descriptor(&maps.a);
  }
  __syncwarp();
  cute::cluster_arrive_relaxed();
  cute::cluster_wait();  // the barriers of all CTAs of the cluster are initialised
  wait_for_earlier_kernels();
  if (warpgroup == Config::kConsumers) {
    if (threadIdx.x == 128 * Config::kConsumers) produce<Config>(a, maps, shared, place);
  } else {
    consume<Config>(a, place, shared, warpgroup);
  }
  __syncwarp();
  // A CTA must not end while others read its sums or arrive at its barriers.
  cute::cluster_arrive();
  cute::cluster_wait();
}

template <class Element, Major kMajorA, Major kMajorB, int kWidth>
int launch_few(const GemmArgs& a, void* stream) {
  using Config = GemmFewConfig<Element, kMajorA, kMajorB, kWidth>;
  GemmFewMaps maps{};
  if (a.k > 0) {
    cudaError_t error = make_operand_map<Element>(&maps.a, a.a, kMajorA, kWidth, a.batch, a.m, a);
    if (error == cudaSuccess) error = make_operand_map<Element>(&maps.b, a.b, kMajorB, a.columns, a.batch, a.n, a);
    if (error != cudaSuccess) return error;
  }
  const ClusterGrid grid{.cluster = a.splits, .most = std::min<std::int64_t>(GemmFewTile::count(a), a.walkers)};
  return launch_clusters<gemm<Config>>(grid, Config::kThreads, Config::kSharedBytes, stream, a.early, a, maps);
}

/// Launches the kernel of the narrowest tile that has all rows of A. Where A is contiguous along its rows, wgmma and
/// TMA need 64 of them at a time.
template <class Element, Major kMajorB>
int launch_few_of_width(const GemmArgs& a, void* stream) {
  constexpr auto k = Major::k, rows = Major::rows;
  if (a.a_major == rows) return launch_few<Element, rows, kMajorB, 64>(a, stream);
  if (a.m <= 8) return launch_few<Element, k, kMajorB, 8>(a, stream);
  if (a.m <= 16) return launch_few<Element, k, kMajorB, 16>(a, stream);
  if (a.m <= 32) return launch_few<Element, k, kMajorB, 32>(a, stream);
  return launch_few<Element, k, kMajorB, 64>(a, stream);
}

template <class Element, int>
constexpr gpu::GemmKernel gemm_few() {
  const auto launch = [](const GemmArgs& a, void* stream) -> int {
    return a.b_major == Major::rows ? launch_few_of_width<Element, Major::rows>(a, stream)
                                    : launch_few_of_width<Element, Major::k>(a, stream);
  };
  return {launch, gemm_few_facts()};
}

}  // namespace falchion::sm90
