// src/sm80/gemm/kernel.cuh: the GEMM kernel of sm80: a CTA computes one tile of D, or of a part of its sums. cp.async
// loads blocks of k to a ring of stages in shared memory, and tensor cores (mma.sync), or in f32 and 8 bits
// multiply-adds, sum them up. This file gives the order of the steps; docs/design/gemm.md has the measurements.
#pragma once

#include <type_traits>

#include "base/divide.hpp"
#include "base/host_device.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "gpu/gemm/after.hpp"
#include "gpu/gemm/store.cuh"
#include "sm80/gemm/byte_load.cuh"
#include "sm80/gemm/fma.cuh"
#include "sm80/gemm/mma.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// sums += A B^T of a tile, for operands with these layouts.
template <Major kMajorA, Major kMajorB, class Config, class TileSums>
FALCHION_DEVICE void add_products(const GemmArgs& a, const GemmTile& t, unsigned char* memory, TileSums& sums) {
  typename TileSums::template Loads<kMajorA, kMajorB> loads(a, t, cute::cast_smem_ptr_to_uint(memory));
  sums.template add<kMajorA, kMajorB>(loads, memory, static_cast<int>(ceil_div(t.k1 - t.k0, Config::kDepth)));
}

/// kGeneral: operands that cannot be moved 16 bytes at a time.
template <class Config, bool kGeneral>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas) gemm(const __grid_constant__ GemmArgs a) {
  extern __shared__ __align__(128) unsigned char memory[];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const bool pairs = a.activation == GemmActivation::swiglu;
  const auto tile_of = [&](unsigned id) {
    return GemmTile(a, gpu::GemmPiece::of(a, id), Config::kRows, pairs ? Config::kColumns / 2 : Config::kColumns);
  };

  std::conditional_t<Config::kWords, FmaSums<Config>, MmaSums<Config>> sums;
  if (const GemmTile t = tile_of(blockIdx.x); t.k0 < t.k1) {
    if constexpr (kGeneral) {
      add_products<Major::neither, Major::neither, Config>(a, t, memory, sums);
    } else if (a.a_major == Major::k) {
      if (a.b_major == Major::k)
        add_products<Major::k, Major::k, Config>(a, t, memory, sums);
      else
        add_products<Major::k, Major::rows, Config>(a, t, memory, sums);
    } else {
      if (a.b_major == Major::k)
        add_products<Major::rows, Major::k, Config>(a, t, memory, sums);
      else
        add_products<Major::rows, Major::rows, Config>(a, t, memory, sums);
    }
  }

  auto* staged = reinterpret_cast<float*>(memory);
  __syncthreads();  // no thread still reads the operands
  sums.put(staged);
  __syncthreads();
  // The tile is computed again: kept from before the products, it made sm_80 spill 32 bytes in f32.
  gpu::store_tile<typename Config::Element, Config::kRows, Config::kColumns, Config::kPitch, Config::kGroup,
                  Config::kThreads>(a, tile_of(hidden(blockIdx.x)), staged);
}

/// Enqueues the launch, and where k is split the one that adds the parts up. The plan has checked the grid size.
template <class Config, bool kGeneral>
int launch_gemm(const GemmArgs& a, void* stream) {
  const std::int64_t blocks = gpu::GemmPiece::count(a);
  const cudaError_t error = launch_kernel<gemm<Config, kGeneral>>(static_cast<unsigned>(blocks), Config::kThreads,
                                                                  Config::kSharedBytes, stream, a.early, a);
  if (error != cudaSuccess || a.splits == 1) return error;
  return gpu::launch_gemm_combine<typename Config::Element>(a, Config::kRows, stream);
}

template <class Config, bool kGeneral>
constexpr gpu::GemmKernel gemm_entry() {
  return {launch_gemm<Config, kGeneral>, gemm_facts(Config::kKind, Config::kTile.name)};
}

}  // namespace falchion::sm80
