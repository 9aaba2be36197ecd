// src/sm90/attention_backward/plain.cuh: the backward variants of kind plain on Hopper, which apply only the band
// between the products: full and causal masks, windows, GQA, lengths.
#pragma once

#include "gpu/attention_backward/around.hpp"
#include "gpu/attention_backward/order.hpp"
#include "sm90/attention_backward/kernel.cuh"

namespace falchion::sm90 {

/// Enqueues the pass and returns a cudaError_t: the statistics of the rows, the kernel, and the conversion of the sums
/// to grad_q.
template <class Config>
int launch_attention_backward(const AttentionBackwardArgs& a, void* stream) {
  const std::int64_t blocks = backward_blocks(a, Owner::keys, 1), tiles = backward_blocks(a, Owner::rows, 1);
  const std::int64_t ctas = Config::kGoesOn ? std::min(blocks, a.ctas_at_once) : blocks;
  unsigned* counter = ctas < blocks ? BackwardLayout::of(a).tile_counter(a, Config::kD) : nullptr;
  int error = launch_before_backward<typename Config::Element>(a, kLog2e, Config::kD, counter, stream);
  if (blocks > INT32_MAX || tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (error == cudaSuccess && blocks > 0) {
    BackwardMaps maps;
    error = make_backward_maps<typename Config::Element>(a, Config::kRows, Config::kKeys, &maps);
    if (error != cudaSuccess) return error;
    const std::int64_t heads = blocks / a.key_tiles;
    const int together = heads_together(heads, a.ctas_at_once, tiles_at_once(a));
    error = launch_kernel<attention_backward<Config>>(
        static_cast<unsigned>(ctas), Config::kThreads, Config::kSharedBytes, stream, a.early, a,
        BackwardDivisors(a, Owner::keys, 1), maps, together, static_cast<int>(heads), counter);
  }
  if (error == cudaSuccess && tiles > 0 && a.grad_q.data != nullptr)
    error = launch_kernel<finish_grad_q<Config>>(static_cast<unsigned>(tiles), 128 * Config::kConsumers, 0, stream,
                                                 a.early, a, BackwardDivisors(a, Owner::rows, 1));
  return error;
}

template <class Element, int kD>
constexpr gpu::AttentionBackwardKernel attention_backward_plain() {
  using Config = AttentionBackwardConfig<Element, kD>;
  return {launch_attention_backward<Config>,
          {.d = kD,
           .rows = Config::kRows,
           .keys = Config::kKeys,
           .threads = Config::kThreads,
           .ctas = 1,
           .shared_bytes = Config::kSharedBytes,
           .goes_on = Config::kGoesOn}};
}

}  // namespace falchion::sm90
