// src/sm80/attention_backward/once.cuh: the variants of kind `once`, for problems with no feature but the band: each
// pair of tiles is computed once, in five products, and the CTAs of a head add to common sums of grad_q.
#pragma once

#include "gpu/attention_backward/around.hpp"
#include "sm80/attention_backward/once/kernel.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Enqueues the pass and returns a cudaError_t: the statistics of the rows, the kernel, and the conversion of the sums
/// to grad_q.
template <class Config>
int launch_attention_backward_once(const AttentionBackwardArgs& a, void* stream) {
  int error = launch_before_backward<typename Config::Element>(a, kLog2e, Config::kD, nullptr, stream);
  const std::int64_t blocks = backward_blocks(a, Owner::keys, 1), tiles = backward_blocks(a, Owner::rows, 1);
  if (blocks > INT32_MAX || tiles > INT32_MAX)
    return cudaErrorInvalidConfiguration;  // packed lengths are known too late for the plan
  const std::int64_t together =
      a.any_order || blocks == 0 ? 1 : std::max(a.ctas_at_once / a.key_tiles, std::int64_t{1});
  if (error == cudaSuccess && blocks > 0)
    error = launch_kernel<attention_backward<Config>>(static_cast<unsigned>(blocks), Config::kThreads,
                                                      Config::kSharedBytes, stream, a.early, a,
                                                      BackwardDivisors(a, Owner::keys, 1), static_cast<int>(together));
  if (error == cudaSuccess && tiles > 0 && a.grad_q.data != nullptr)
    error = launch_kernel<finish_grad_q<Config>>(static_cast<unsigned>(tiles), Config::kThreads, 0, stream, a.early, a,
                                                 BackwardDivisors(a, Owner::rows, 1));
  return error;
}

template <class Element, int kD>
constexpr gpu::AttentionBackwardKernel attention_backward_once() {
  using Config = BackwardOnce<Element, kD>;
  return {launch_attention_backward_once<Config>,
          {.d = kD,
           .rows = Config::kRows,
           .keys = Config::kKeys,
           .threads = Config::kThreads,
           .ctas = Config::kCtas,
           .shared_bytes = Config::kSharedBytes}};
}

}  // namespace falchion::sm80
