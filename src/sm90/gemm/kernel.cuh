// src/sm90/gemm/kernel.cuh: the GEMM kernel of Hopper, with TMA, wgmma and warp roles. A cluster of CTAs walks over
// tiles of D, of which each CTA has some rows; a producer thread in each loads blocks of k into a ring of stages, and
// consumer warpgroups of 64 rows, or twice 64, sum them up. While they store a tile, the producer loads blocks of the
// next one. docs/design/gemm.md has the measurements.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <algorithm>

#include "base/host_device.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "gpu/gemm/after.hpp"
#include "sm90/gemm/bytes/sums.cuh"
#include "sm90/gemm/store.cuh"

namespace falchion::sm90 {

/// sums = the products of the blocks of k of a tile, from stage `at` of the ring on. release(stage): this warpgroup has
/// read that stage. Each product is started before the previous one is waited for.
template <class Config, class A, class B, class Sums, class Release>
FALCHION_DEVICE void add_products(const GemmTile& t, typename Config::Shared& shared, const A& rA, const B& rB,
                                  RingPosition<Config::kStages>& at, Sums& sums, const Release& release) {
  using Mma = typename Config::Mma;
  const auto blocks = static_cast<int>((t.k1 - t.k0 + Config::kDepth - 1) / Config::kDepth);
  if (blocks <= 0) return clear(sums);
  shared.full[at.stage].wait(at.parity);
  start_multiply<true>(Mma{}, rA(_, _, _, at.stage), rB(_, _, _, at.stage), sums);  // sums = A B^T
  for (int block = 1; block < blocks; ++block) {
    const int before = at.stage;
    at.advance();
    shared.full[at.stage].wait(at.parity);
    start_multiply<false>(Mma{}, rA(_, _, _, at.stage), rB(_, _, _, at.stage), sums);  // sums += A B^T
    wait_multiply<1>(sums);
    release(before);
  }
  wait_multiply<0>(sums);
  release(at.stage);
  at.advance();
}

/// Consumer warpgroup `number`.
template <class Config>
FALCHION_DEVICE void consume(const GemmArgs& a, const GemmMaps& maps, typename Config::Shared& shared, int number) {
  using Mma = typename Config::Mma;
  const auto sA = make_tensor(make_smem_ptr(shared.a[0]), typename Config::LayoutA{});  // (M, K, stages)
  const auto sB = make_tensor(make_smem_ptr(shared.b[0]), typename Config::LayoutB{});  // (N, K, stages)
  const auto slice = Mma{}.get_slice(number * 128);
  const auto rA = slice.partition_fragment_A(sA);  // (1, waves, steps of K, stages)
  const auto rB = slice.partition_fragment_B(sB);  // (1, 1, steps of K, stages)
  auto sums = partition_fragment_C(Mma{}, Shape<Int<Config::kRows>, Int<Config::kColumns>>{});  // (64, waves, N)
  const unsigned thread = gpu::hidden(threadIdx.x % 128);  // else it is found again in each round of the loop
  // One thread for each CTA of the cluster signals there that this warpgroup has read a stage.
  const auto release = [&](int stage) { shared.empty[stage].arrive(thread, thread < Config::kCluster); };

  RingPosition<Config::kStages> at;
  for (GemmTilesOfCluster<Config> tiles(a); tiles.more();) {
    const GemmTile t = tiles.next();
    // What follows from it is not kept from tile to tile.
    const int warpgroup = gpu::hidden(static_cast<int>(threadIdx.x) / 128);
    const TileTerms<Config> terms(a, t, warpgroup, a.d_boxes && !a.d_i32 && t.part < 0);
    if constexpr (Config::kPromoted) {
      clear(sums);
      if constexpr (Config::kWaves == 1)
        add_promoted<Config>(t, shared, rA, rB, at, sums, release);
      else
        add_promoted_waves<Config>(t, shared, rA, rB, at, sums, release);
    } else {
      add_products<Config>(t, shared, rA, rB, at, sums, release);
    }
    auto numbers = recast<float>(sums);  // for i8 the bits of the i32 sums
    if (t.part >= 0) {
      store_part<Config>(a, t, warpgroup, numbers);
    } else if (a.d_boxes) {
      if (!a.plain) finish<Config>(a, shared, warpgroup, terms, at, numbers, release);
      store_in_boxes<Config>(a, t, maps, shared, warpgroup, numbers);
    } else {
      store_columns<Config>(a, t, shared, warpgroup, numbers);
    }
  }
  if (thread % 32 == 0) cute::tma_store_wait<0>();
}

template <class Config>
__global__ void __cluster_dims__(Config::kCluster, 1, 1) __launch_bounds__(Config::kThreads, 1)
    gemm(const __grid_constant__ GemmArgs a, const __grid_constant__ GemmMaps maps) {
  extern __shared__ __align__(1024) unsigned char memory[];
  let_next_kernel_start();
  auto& shared = *reinterpret_cast<typename Config::Shared*>(memory);
  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (threadIdx.x == 0) {
    if (a.k > 0) {
      cute::prefetch_tma_descriptor(&maps.a);
      cute::prefetch_tma_descriptor(&maps.b);
    }
    if (a.d_boxes) cute::prefetch_tma_descriptor(&maps.d);
    for (int i = 0; i < Config::kStages; ++i) {
      shared.full[i].init(1);
      shared.empty[i].init(Config::kConsumers * Config::kCluster);
    }
    cutlass::arch::fence_barrier_init();
  }
  cute::cluster_arrive_relaxed();
  cute::cluster_wait();  // the barriers of all CTAs of the cluster are initialised
  wait_for_earlier_kernels();
  if (warpgroup == Config::kConsumers) {
    if constexpr (Config::kProducerRegisters > 0) cutlass::arch::warpgroup_reg_dealloc<Config::kProducerRegisters>();
    if (threadIdx.x == 128 * Config::kConsumers) produce<Config>(a, maps, shared);
  } else {
    if constexpr (Config::kConsumerRegisters > 0) cutlass::arch::warpgroup_reg_alloc<Config::kConsumerRegisters>();
    consume<Config>(a, maps, shared, warpgroup);
  }
  __syncwarp();
  // A CTA must not end before the others have signalled that they read what it loaded for them.
  cute::cluster_arrive();
  cute::cluster_wait();
}

template <class Config>
int launch_gemm(const GemmArgs& a, void* stream) {
  GemmMaps maps{};
  cudaError_t error = cudaSuccess;
  const std::int64_t rows_b = a.activation == GemmActivation::swiglu ? 2 * a.n : a.n;
  using Element = typename Config::Element;
  if (a.k > 0) {
    error = make_operand_map<Element>(&maps.a, a.a, Config::kMajorA, Config::kRows, a.batch, a.m, a);
    if (error != cudaSuccess) return error;
    error = make_operand_map<Element>(&maps.b, a.b, Config::kMajorB, Config::kBoxRows, a.batch, rows_b, a);
    if (error != cudaSuccess) return error;
  }
  if (a.d_boxes) {
    // TMA only copies numbers of D, C and the residual, so all types of a size are one.
    error = a.d_i32 ? make_map_of_d<float>(&maps.d, a.d, 16, a) : make_map_of_d<bf16>(&maps.d, a.d, 16, a);
    if (error != cudaSuccess) return error;
    error = make_map_of_d<bf16>(&maps.c, a.c, Config::kRows, a);
    if (error != cudaSuccess) return error;
    error = make_map_of_d<bf16>(&maps.residual, a.residual, Config::kRows, a);
    if (error != cudaSuccess) return error;
  }
  const std::int64_t tiles = gpu::GemmPiece::count(a);
  const auto clusters = static_cast<unsigned>(std::min<std::int64_t>(tiles, a.walkers));
  error = launch_kernel<gemm<Config>>(clusters * Config::kCluster, Config::kThreads, Config::kSharedBytes, stream,
                                      a.early, a, maps);
  if (error != cudaSuccess || a.splits == 1) return error;
  return gpu::launch_gemm_combine<Element>(a, Config::kRows * Config::kCluster, stream);
}

/// Launches the kernel with that tile for the operands' layouts.
template <class Element, VariantTile tile>
int launch_gemm_as_it_lies(const GemmArgs& a, void* stream) {
  constexpr auto k = Major::k, rows = Major::rows;
  if (a.a_major == Major::rows) {
    return a.b_major == Major::rows ? launch_gemm<GemmConfig<Element, rows, rows, tile>>(a, stream)
                                    : launch_gemm<GemmConfig<Element, rows, k, tile>>(a, stream);
  }
  return a.b_major == Major::rows ? launch_gemm<GemmConfig<Element, k, rows, tile>>(a, stream)
                                  : launch_gemm<GemmConfig<Element, k, k, tile>>(a, stream);
}

}  // namespace falchion::sm90
