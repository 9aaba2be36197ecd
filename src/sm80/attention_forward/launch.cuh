// src/sm80/attention_forward/launch.cuh: launches a forward kernel with the grid of the plan, and after it the combine
// kernel where the keys are split. All decisions are the plan's.
#pragma once

#include "gpu/attention_forward/after.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/stream_order.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Merges the parts of the keys. O has the type of the products; beside V of 8 bits a run says which.
template <class Config>
int combine(const AttentionArgs& a, void* stream) {
  if constexpr (Config::kBytesOfV) {
    if (a.type_o == Number::bf16) return launch_attention_combine<cutlass::bfloat16_t>(a, stream);
  }
  return launch_attention_combine<typename Config::Element>(a, stream);
}

/// Enqueues the launches and returns a cudaError_t.
template <auto kKernel, class Config>
int launch_attention(const AttentionArgs& a, void* stream) {
  const std::int64_t blocks = a.tiles * (a.h_q / a.group) * (a.packed ? 1 : a.b) * a.splits;
  // The plan has checked the size of the grid, but it knows the number of packed rows only as a hint.
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  const cudaError_t error = launch_kernel<kKernel>(static_cast<unsigned>(blocks), Config::kThreads,
                                                   Config::kSharedBytes, stream, a.early, a, Divisors(a));
  return error == cudaSuccess && a.splits > 1 ? combine<Config>(a, stream) : error;
}

}  // namespace falchion::sm80
