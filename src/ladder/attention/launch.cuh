// src/ladder/attention/launch.cuh: how the GPU steps start a kernel: enough shared memory, the head dim as a constant,
// and an error as a Status.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "gpu/runtime.hpp"
#include "ladder/attention/step.hpp"

namespace falchion::ladder::on_gpu {

constexpr int divide_up(int a, int b) { return (a + b - 1) / b; }

template <class... Parameters>
Status launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, int shared_bytes, Stream stream,
              std::type_identity_t<Parameters>... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  cudaError_t error = cudaSuccess;
  if (shared_bytes > 48 << 10)  // more than that must be asked for
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error == cudaSuccess) {
    kernel<<<grid, block, static_cast<std::size_t>(shared_bytes), static_cast<cudaStream_t>(stream)>>>(arguments...);
    error = cudaGetLastError();
  }
  return error == cudaSuccess ? Status{} : Status{Code::device, gpu::error_text(error)};
}

/// Calls f(integral_constant<int, d>): tiles need their sizes at compile time.
template <class F>
Status with_head_dim(const Problem& p, const F& f) {
  if (p.d == 64) return f(std::integral_constant<int, 64>{});
  if (p.d == 128) return f(std::integral_constant<int, 128>{});
  return {Code::unsupported, "the ladder has head dims 64 and 128, not " + std::to_string(p.d)};
}

/// exp(s - m), and 0 where nothing has been seen: -inf - -inf is no number.
__device__ inline float weight(float s, float m) { return s == -INFINITY ? 0 : expf(s - m); }

}  // namespace falchion::ladder::on_gpu
