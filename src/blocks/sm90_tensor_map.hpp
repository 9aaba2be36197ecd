// src/blocks/sm90_tensor_map.hpp: the driver's function that describes a tensor to the bulk copy engine. It is looked
// up and never linked: the library loads where there is no driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>

namespace falchion::sm90 {

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);

/// Kept once it was found. A failure is not kept: what made it fail (no memory, a context that is yet to come) may have
/// passed at the next call.
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
