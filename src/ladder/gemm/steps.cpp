// src/ladder/gemm/steps.cpp: lists the steps in their order. tools/ladder/gemm.cpp runs the last ones, which are the
// library's own kernels.
#include "ladder/gemm/step.hpp"

namespace falchion::ladder::gemm {

namespace on_cpu {
extern const Step naive, packed_blocks, microkernel;
}
namespace on_gpu {
extern const Step naive, coalesced, shared_tile, register_tile, vectors, warp_tiles;  // f32
extern const Step tensor_cores, multistage, block_order;                              // bf16
extern const Step wgmma, roles, tma_store, stream_k;                                  // for sm_90 alone
extern const Step sliced_k, split_k_cluster, split_k_memory, ping_pong;               // branches, in bf16
}  // namespace on_gpu

std::span<const Step* const> cpu_steps() {
  static constexpr const Step* kSteps[] = {&on_cpu::naive, &on_cpu::packed_blocks, &on_cpu::microkernel};
  return kSteps;
}

std::span<const Step* const> gpu_steps() {
#if FALCHION_LADDER_CUDA
  static constexpr const Step* kSteps[] = {
    &on_gpu::naive,
    &on_gpu::coalesced,
    &on_gpu::shared_tile,
    &on_gpu::register_tile,
    &on_gpu::vectors,
    &on_gpu::warp_tiles,
    &on_gpu::tensor_cores,
    &on_gpu::multistage,
    &on_gpu::block_order,
  #if FALCHION_LADDER_SM90
    &on_gpu::wgmma,
    &on_gpu::roles,
    &on_gpu::tma_store,
    &on_gpu::stream_k,
  #endif
  };
  return kSteps;
#else
  return {};
#endif
}

std::span<const Branch> gpu_branches() {
#if FALCHION_LADDER_CUDA
  static constexpr Branch kBranches[] = {
    {&on_gpu::sliced_k, &on_gpu::multistage, {64, 256, 16384}},
  #if FALCHION_LADDER_SM90
    {&on_gpu::split_k_cluster, &on_gpu::wgmma, {64, 4096, 14336}},
    {&on_gpu::split_k_memory, &on_gpu::wgmma, {256, 256, 65536}},
    {&on_gpu::ping_pong, &on_gpu::tma_store, {4096, 4096, 256}},
  #endif
  };
  return kBranches;
#else
  return {};
#endif
}

}  // namespace falchion::ladder::gemm
