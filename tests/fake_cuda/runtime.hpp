// tests/fake_cuda/runtime.hpp: CUDA's runtime as far as src/cuda/runtime_cuda.cpp and the host's part of src/blocks use
// it, for machines that have no GPU: what its calls return is the test's to say, and the last error is kept as the real
// one keeps it.
#pragma once

#include <cuda_runtime_api.h>

namespace falchion::testing {

struct FakeRuntime {
  int devices = 1, current = 0, major = 9, minor = 0;
  cudaError_t next = cudaSuccess;  // what the next call returns, once; success: as all is well
  cudaError_t last = cudaSuccess;  // what cudaGetLastError returns, and takes away unless it is sticky
  bool sticky = false;             // the context is broken: every call returns `last`
  void* entry_point = nullptr;     // the function that the driver gives out; null: it has none of that name
  int (*set_context)(void* context) = nullptr;  // the driver's: cudaSetDevice makes the device's own one current
  int primary[4] = {};                          // their addresses stand for the devices' own contexts
  int starts = 0;                               // calls that start CUDA or make a context
};
FakeRuntime& fake_runtime();

}  // namespace falchion::testing
