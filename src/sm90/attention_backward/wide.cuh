// src/sm90/attention_backward/wide.cuh: the backward variants on Hopper for head dims above 128, kind wide: like plain,
// they apply only the band between the products. An accumulator of 64 rows takes half of a thread's registers here, so
// no warpgroup has two of them. Some CTAs own keys and make grad_k and grad_v, others own rows and make grad_q, and
// both compute S and dP: seven products instead of five, but no sum passes from CTA to CTA. ref/ defines the result;
// docs/design/sm90_backward.md has the schedule and the measurements.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "gpu/attention_backward/around.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "sm90/attention_backward/wide/keys.cuh"
#include "sm90/attention_backward/wide/rows.cuh"

namespace falchion::sm90 {

/// The first `key_blocks` CTAs own keys, and the others own rows. They are one kernel, so that those that own rows fill
/// the SMs that the last ones with keys leave idle.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    attention_backward(const __grid_constant__ AttentionBackwardArgs a,
                       const __grid_constant__ BackwardDivisors by_keys,
                       const __grid_constant__ BackwardDivisors by_rows, const __grid_constant__ BackwardMaps maps,
                       int key_blocks) {
  extern __shared__ __align__(1024) unsigned char memory[];
  let_next_kernel_start();
  const int block = static_cast<int>(blockIdx.x);
  if (block < key_blocks) {
    own_keys<Config>(a, by_keys, maps, block, *reinterpret_cast<typename Config::KeysShared*>(memory));
  } else {
    own_rows<Config>(a, by_rows, maps, block - key_blocks, *reinterpret_cast<typename Config::RowsShared*>(memory));
  }
}

/// Enqueues the pass and returns a cudaError_t: the statistics of the rows, then the kernel.
template <class Config>
int launch_attention_backward_wide(const AttentionBackwardArgs& a, void* stream) {
  int error = launch_before_backward<typename Config::Element>(a, kLog2e, 0, nullptr, stream);
  const std::int64_t keys = a.grad_k.data != nullptr ? backward_blocks(a, Owner::keys, 1) : 0;
  const std::int64_t rows = a.grad_q.data != nullptr ? backward_blocks(a, Owner::rows, 1) : 0;
  if (keys + rows > INT32_MAX)
    return cudaErrorInvalidConfiguration;  // packed lengths are known too late for the plan to check
  if (error != cudaSuccess || keys + rows == 0) return error;
  BackwardMaps maps;
  error = make_backward_maps<typename Config::Element>(a, Config::kLines, Config::kLines, &maps);
  if (error != cudaSuccess) return error;
  // A side without blocks is never divided by, but FastDivmod cannot be made of 0.
  const BackwardDivisors by_keys(a, keys > 0 ? Owner::keys : Owner::rows, 1);
  const BackwardDivisors by_rows(a, rows > 0 ? Owner::rows : Owner::keys, 1);
  return launch_kernel<attention_backward<Config>>(static_cast<unsigned>(keys + rows), Config::kThreads,
                                                   Config::kSharedBytes, stream, a.early, a, by_keys, by_rows, maps,
                                                   static_cast<int>(keys));
}

template <class Element, int kD>
constexpr gpu::AttentionBackwardKernel attention_backward_wide() {
  using Config = WideConfig<Element, kD>;
  return {launch_attention_backward_wide<Config>,
          {.d = kD,
           .rows = Config::kRows,
           .keys = Config::kKeys,
           .threads = Config::kThreads,
           .ctas = 1,
           .shared_bytes = Config::kSharedBytes}};
}

}  // namespace falchion::sm90
