// src/sm80/attention_launch.cuh: hands the plan's grid over. It decides nothing.
#pragma once

#include "sm80/attention_combine.cuh"
#include "sm80/attention_tile.cuh"

namespace falchion::sm80 {

/// A cudaError_t, told here and not left behind for the next call.
template <class Config, class Element, class Kernel>
int launch_attention(Kernel kernel, const AttentionArgs& a, void* stream) {
  const std::int64_t blocks = a.tiles * (a.h_q / a.group) * (a.packed ? 1 : a.b) * a.splits;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;  // packed rows are counted by a hint when planned
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Config::kSharedBytes);
  if (error == cudaSuccess) {
    kernel<<<static_cast<unsigned>(blocks), Config::kThreads, Config::kSharedBytes,
             static_cast<cudaStream_t>(stream)>>>(a, Divisors(a));
    error = cudaGetLastError();
  } else {
    cudaGetLastError();
  }
  return error == cudaSuccess && a.splits > 1 ? launch_attention_combine<Element>(a, stream) : error;
}

/// The row of the table. probabilities: null, or what runs after launch.
template <class Config>
constexpr gpu::AttentionKernel table_row(int (*launch)(const AttentionArgs&, void* stream),
                                         int (*probabilities)(const AttentionArgs&, void* stream) = nullptr) {
  return {launch,           probabilities,   Config::kD,    Config::kRows,       Config::kKeys,
          Config::kThreads, Config::kStages, Config::kCtas, Config::kSharedBytes};
}

}  // namespace falchion::sm80
