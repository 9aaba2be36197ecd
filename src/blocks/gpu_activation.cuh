// src/blocks/gpu_activation.cuh: the activations of a GEMM on a GPU. What they mean is in src/ref/gemm.cpp.
#pragma once

#include <cuda_runtime.h>

#include "args/gemm_call.hpp"

namespace falchion {

/// x / (1 + e^-y). Where e^-y overflows, x / Inf is 0, or NaN for an infinite x, as the definition has it.
__device__ __forceinline__ float times_sigmoid(float x, float y) { return x / (1.f + expf(-y)); }

__device__ __forceinline__ float silu(float x) { return times_sigmoid(x, x); }

/// The approximation with tanh, as x sigmoid(2u): near -3, 1 + tanh would leave few bits.
__device__ __forceinline__ float gelu_tanh(float x) {
  return times_sigmoid(x, x * fmaf(x * x, 0.044715f, 1.f) * 1.5957691216f);
}
/// erfc keeps the digits where x is far below 0.
__device__ __forceinline__ float gelu_erf(float x) { return x * (0.5f * erfcf(x * -0.70710678119f)); }

/// NaN stays NaN.
__device__ __forceinline__ float relu(float x) { return x < 0.f ? 0.f : x; }

/// z = activation(z), element by element. Of swiglu, whose other half the caller multiplies by, it is the gate's.
template <int kCount>
__device__ __forceinline__ void activate(GemmActivation activation, float (&z)[kCount]) {
  const auto each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) z[i] = f(z[i]);
  };
  switch (activation) {
    case GemmActivation::none: return;
    case GemmActivation::relu: return each([](float x) { return relu(x); });
    case GemmActivation::gelu_tanh: return each([](float x) { return gelu_tanh(x); });
    case GemmActivation::gelu_erf: return each([](float x) { return gelu_erf(x); });
    case GemmActivation::silu:
    case GemmActivation::swiglu: return each([](float x) { return silu(x); });
  }
}

}  // namespace falchion
