// src/sm90/attention_backward_wide.cuh: the backward variants on Hopper for head dims above 128, kind wide: as plain,
// they need nothing but the band between the products. An accumulator of 64 rows takes half of a thread's registers
// here, so no warpgroup has two of them. Some CTAs own keys and make grad_k and grad_v, others own rows and make
// grad_q, and both compute S and dP: seven products instead of five. For that no sum passes from CTA to CTA. What is
// computed is defined in src/ref; docs/design/sm90_backward.md has the schedule and the measurements.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "blocks/stream_order.cuh"
#include "gpu/attention_backward_around.hpp"
#include "sm90/attention_backward_wide_keys.cuh"
#include "sm90/attention_backward_wide_rows.cuh"

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

/// Whoever launches the kernel has keys or rows, so k or q has an address; it stands in for an empty tensor's.
template <class Config>
cudaError_t make_wide_maps(const AttentionBackwardArgs& a, BackwardMaps* maps) {
  using Element = typename Config::Element;
  const std::int64_t b = a.packed ? 1 : a.b;
  const std::int64_t s_q = a.packed ? a.total_q : a.s_q;
  const std::int64_t s_k = a.packed ? a.total_k : a.s_k;
  const TensorBox q{b, s_q, a.h_q, a.d_qk, Config::kBox, 1, Config::kLines};
  const TensorBox k{b, s_k, a.h_k, a.d_qk, Config::kBox, 1, Config::kLines};
  TensorBox v = k, grad_o = q;
  v.d = grad_o.d = a.d_v;
  void* there = a.k.data != nullptr ? a.k.data : a.q.data;
  cudaError_t error = make_tensor_map<Element>(&maps->q, a.q, q, there);
  if (error == cudaSuccess) error = make_tensor_map<Element>(&maps->k, a.k, k, there);
  if (error == cudaSuccess) error = make_tensor_map<Element>(&maps->v, a.v, v, there);
  if (error == cudaSuccess) error = make_tensor_map<Element>(&maps->grad_o, a.grad_o, grad_o, there);
  return error;
}

/// Enqueues the pass and returns a cudaError_t: the statistics of the rows, then the kernel.
template <class Config>
int launch_attention_backward_wide(const AttentionBackwardArgs& a, void* stream) {
  int error = launch_before_backward<typename Config::Element>(a, kLog2e, 0, stream);
  const std::int64_t keys = a.grad_k.data != nullptr ? backward_blocks(a, Owner::keys, 1) : 0;
  const std::int64_t rows = a.grad_q.data != nullptr ? backward_blocks(a, Owner::rows, 1) : 0;
  if (keys + rows > INT32_MAX) return cudaErrorInvalidConfiguration;  // packed rows are known too late for the plan
  if (error != cudaSuccess || keys + rows == 0) return error;
  BackwardMaps maps;
  error = make_wide_maps<Config>(a, &maps);
  if (error != cudaSuccess) return error;
  // Nothing is divided by the numbers of a side without blocks, and FastDivmod cannot be made of 0.
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
