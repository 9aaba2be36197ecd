// src/ladder/launch.cuh: how the GPU steps of every ladder start a kernel. It asks for enough shared memory and returns
// errors as a Status.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "falchion/falchion.hpp"
#include "runtime/runtime.hpp"

namespace falchion::ladder {

constexpr int divide_up(int a, int b) { return (a + b - 1) / b; }

inline Status to_status(cudaError_t error) { return cuda::status_of(error, "launch"); }

/// A kernel must ask for shared memory beyond the 48 KB that every kernel may have.
template <class... Parameters>
cudaError_t allow_shared(void (*kernel)(Parameters...), int bytes) {
  return bytes > 48 << 10 ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)
                          : cudaSuccess;
}

template <class... Parameters>
Status launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, int shared_bytes, Stream stream,
              std::type_identity_t<Parameters>... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  cudaError_t error = allow_shared(kernel, shared_bytes);
  cudaLaunchConfig_t launch{};
  launch.gridDim = grid;
  launch.blockDim = block;
  launch.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  launch.stream = static_cast<cudaStream_t>(stream);
  if (error == cudaSuccess) error = cudaLaunchKernelEx(&launch, kernel, arguments...);
  return to_status(error);
}

}  // namespace falchion::ladder
