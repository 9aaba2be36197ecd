// src/base/host_device.hpp: how a function is compiled for the host, for each CPU level and for the GPU.
#pragma once

#if defined(__CUDACC__)
  #define FALCHION_HD __host__ __device__ __forceinline__
  #define FALCHION_DEVICE __device__ __forceinline__  // of device code alone
#else
  // Always inlined: the same function is compiled once with AVX-512 flags and once without, and an out-of-line copy
  // would let the linker hand the AVX-512 one to a machine that has none (tests/levels_test.sh looks for that).
  #define FALCHION_HD inline __attribute__((always_inline))
  #define FALCHION_DEVICE inline  // tests run device code on the host
#endif
