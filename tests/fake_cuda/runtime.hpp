// tests/fake_cuda/runtime.hpp: as much of CUDA's runtime as src/runtime/runtime_cuda.cpp and the host's part of
// src/gpu/blocks use, for machines that have no GPU. The test says what its calls return. The last error is kept as the
// real runtime keeps it.
#pragma once

#include <cuda_runtime_api.h>

#include "args/gpu_merge_args.hpp"

namespace falchion::testing {

struct FakeRuntime {
  int devices = 1, current = 0, major = 9, minor = 0;
  // What the next call returns, once. With cudaSuccess calls behave normally.
  cudaError_t next = cudaSuccess;
  // What cudaGetLastError returns. That call clears it unless it is sticky.
  cudaError_t last = cudaSuccess;
  bool sticky = false;          // If this is true the context is broken, and every call returns `last`.
  void* entry_point = nullptr;  // The function that the driver gives out, or null where it has none of that name.
  // The driver's function, with which cudaSetDevice makes the device's own context current.
  int (*set_context)(void* context) = nullptr;
  int primary[4] = {};           // The addresses of these stand for the devices' own contexts.
  int starts = 0;                // How many calls started CUDA or made a context.
  int merges = 0;                // How often merge() launched its kernel,
  gpu::MergeArgs merge;          // with what the last time,
  void* merge_stream = nullptr;  // and where.
};
FakeRuntime& fake_runtime();

}  // namespace falchion::testing
