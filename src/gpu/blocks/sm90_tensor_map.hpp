// src/gpu/blocks/sm90_tensor_map.hpp: finds the driver's function that makes tensor maps for the bulk copy engine
// (TMA). It is looked up at run time and never linked, so that the library also loads where there is no driver.
// gpu/blocks/sm90_tma.cuh and docs/design/sm90_forward.md describe the use of tensor maps.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>

#include "gpu/blocks/sm90_map_cache.hpp"

namespace falchion::sm90 {

/// Remembers the function once it has been found. A failure is not remembered: its cause (no memory, a context that
/// does not exist yet) may be gone at the next call.
inline cudaError_t find_tensor_map_encoder(EncodeTensorMap* encode) {
  static std::atomic<EncodeTensorMap> found{nullptr};
  *encode = found.load(std::memory_order_relaxed);
  if (*encode != nullptr) return cudaSuccess;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
  if (error != cudaSuccess) return error;
  if (result != cudaDriverEntryPointSuccess || function == nullptr) return cudaErrorNotSupported;
  *encode = reinterpret_cast<EncodeTensorMap>(function);
  found.store(*encode, std::memory_order_relaxed);
  return cudaSuccess;
}

}  // namespace falchion::sm90
