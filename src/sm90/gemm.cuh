// src/sm90/gemm.cuh: the GEMM kernel of Hopper, with TMA, wgmma and warp roles. A cluster of CTAs walks over tiles of
// D, of which each CTA has some rows; a producer thread in each loads blocks of k into a ring of stages, and consumer
// warpgroups of 64 rows sum them up. While they store a tile, the producer loads blocks of the next one. What was
// measured is in docs/design/gemm.md.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <algorithm>

#include "blocks/stream_order.cuh"
#include "gpu/gemm_after.hpp"
#include "sm90/gemm_bytes_sums.cuh"
#include "sm90/gemm_store.cuh"

namespace falchion::sm90 {

/// One consumer warpgroup.
template <class Config>
__device__ __forceinline__ void consume(const GemmArgs& a, const GemmMaps& maps, typename Config::Shared& shared,
                                        int warpgroup) {
  using Mma = typename Config::Mma;
  const auto sA = make_tensor(make_smem_ptr(shared.a[0]), typename Config::LayoutA{});  // (M, K, stages)
  const auto sB = make_tensor(make_smem_ptr(shared.b[0]), typename Config::LayoutB{});  // (N, K, stages)
  const auto slice = Mma{}.get_slice(warpgroup * 128);
  const auto rA = slice.partition_fragment_A(sA);  // (1, 1, steps of K, stages)
  const auto rB = slice.partition_fragment_B(sB);  // (1, 1, steps of K, stages)
  auto sums = partition_fragment_C(Mma{}, Shape<Int<Config::kRows>, Int<Config::kColumns>>{});  // (64, N)
  const unsigned thread = threadIdx.x % 128;
  // A thread for each CTA of the cluster says there that this warpgroup has read a stage.
  const auto release = [&](int stage) { shared.empty[stage].arrive(thread, thread < Config::kCluster); };

  RingPosition<Config::kStages> at;
  for (GemmTilesOfCluster<Config> tiles(a); tiles.more();) {
    const GemmTile t = tiles.next();
    clear(sums);
    if constexpr (Config::kPromoted) {
      add_promoted<Config>(t, shared, rA, rB, at, sums, release);
    } else {
      int before = -1;  // the stage of the block before
      for (std::int64_t k = t.k0; k < t.k1; k += Config::kDepth) {
        shared.full[at.stage].wait(at.parity);
        start_multiply<false>(Mma{}, rA(_, _, _, at.stage), rB(_, _, _, at.stage), sums);
        if (before >= 0) {
          wait_multiply<1>(sums);
          release(before);
        }
        before = at.stage;
        at.advance();
      }
      wait_multiply<0>(sums);
      if (before >= 0) release(before);
    }
    if constexpr (Config::kTurned)
      store_turned<Config>(a, t, shared, warpgroup, sums);
    else if constexpr (sizeof(typename Config::Element) == 1)
      store_columns<Config>(a, t, shared, warpgroup, recast<float>(sums));  // of i8 the bits
    else if (a.d_boxes)
      store_boxes<Config>(a, t, maps, shared, warpgroup, sums);
    else
      store_columns<Config>(a, t, shared, warpgroup, sums);
  }
  if (thread == 0) cute::tma_store_wait<0>();
}

template <class Config>
__global__ void __cluster_dims__(Config::kCluster, 1, 1) __launch_bounds__(Config::kThreads, 1)
    gemm(const __grid_constant__ GemmArgs a, const __grid_constant__ GemmMaps maps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  let_next_kernel_start();
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) {
      shared.full[i].init(1);
      shared.empty[i].init(Config::kConsumers * Config::kCluster);
    }
    cutlass::arch::fence_barrier_init();
  }
  cute::cluster_arrive_relaxed();
  cute::cluster_wait();  // the barriers of all CTAs of the cluster are there
  wait_for_earlier_kernels();
  if (warpgroup == Config::kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<Config::kProducerRegisters>();
    if (threadIdx.x == 128 * Config::kConsumers) produce<Config>(a, maps, shared);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Config::kConsumerRegisters>();
    consume<Config>(a, maps, shared, warpgroup);
  }
  __syncwarp();
  // A CTA must not end before the others have said that they read what it loaded for them.
  cute::cluster_arrive();
  cute::cluster_wait();
}

template <class Config>
int launch_gemm(const GemmArgs& a, void* stream) {
  GemmMaps maps{};
  cudaError_t error = cudaSuccess;
  const std::int64_t rows_b = a.activation == GemmActivation::swiglu ? 2 * a.n : a.n;
  using Element = typename Config::Element;
  // `a` is the operand whose rows are those of the product.
  const std::int64_t rows_of_a = Config::kTurned ? rows_b : a.m, rows_of_b = Config::kTurned ? a.m : rows_b;
  if (a.k > 0) {
    error = make_operand_map<Element>(&maps.a, a.a, Config::kMajorA, Config::kRows, a.batch, rows_of_a, a);
    if (error != cudaSuccess) return error;
    error = make_operand_map<Element>(&maps.b, a.b, Config::kMajorB, Config::kColumns / Config::kCluster, a.batch,
                                      rows_of_b, a);
    if (error != cudaSuccess) return error;
  }
  if (a.d_boxes && !Config::kTurned) {
    error = make_tensor_map<Element>(&maps.d, a.d, TensorBox{a.batch, a.m, a.n / a.n1, a.n1, 64, 1, 64}, nullptr);
    if (error != cudaSuccess) return error;
  }
  const std::int64_t tiles = a.tiles_m * a.tiles_n * a.batch * a.splits;
  const auto clusters = static_cast<unsigned>(std::min<std::int64_t>(tiles, a.walkers));
  error = launch_kernel<gemm<Config>>(clusters * Config::kCluster, Config::kThreads, Config::kSharedBytes, stream,
                                      a.early, a, maps);
  return error == cudaSuccess && a.splits > 1 ? gpu::launch_gemm_combine<Element>(a, stream) : error;
}

/// The kernel of that kind for how the operands lie.
template <class Element, GemmKind kind>
int launch_gemm_as_it_lies(const GemmArgs& a, void* stream) {
  constexpr auto k = Major::k, rows = Major::rows;
  if (a.a_major == Major::rows) {
    return a.b_major == Major::rows ? launch_gemm<GemmConfig<Element, rows, rows, kind>>(a, stream)
                                    : launch_gemm<GemmConfig<Element, rows, k, kind>>(a, stream);
  }
  return a.b_major == Major::rows ? launch_gemm<GemmConfig<Element, k, rows, kind>>(a, stream)
                                  : launch_gemm<GemmConfig<Element, k, k, kind>>(a, stream);
}

}  // namespace falchion::sm90
