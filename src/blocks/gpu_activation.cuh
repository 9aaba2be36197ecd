// src/blocks/gpu_activation.cuh: the activations of a GEMM on a GPU. What they mean is in src/ref/gemm.cpp. Each result
// is right to a few units of f32 of itself, also far below 0, where it is tiny; blocks/activation.hpp, the same for the
// CPU, says why exponents are sums of two numbers.
#pragma once

#include <cuda_runtime.h>

#include "args/gemm_call.hpp"

namespace falchion {

/// high + low: high is rounded to f32, low is what that left out.
struct Twice {
  float high, low;
};

__device__ __forceinline__ Twice product(float x, float y) {
  const float high = __fmul_rn(x, y);  // not contracted to a multiply-add with what follows
  return {high, fmaf(x, y, -high)};
}
__device__ __forceinline__ Twice product(Twice x, float y) {
  const Twice out = product(x.high, y);
  return {out.high, fmaf(x.low, y, out.low)};
}
__device__ __forceinline__ Twice product(Twice x, Twice y) {
  const Twice out = product(x, y.high);
  return {out.high, fmaf(x.high, y.low, out.low)};
}
/// Knuth's sum of two numbers, which loses nothing.
__device__ __forceinline__ Twice sum(Twice x, Twice y) {
  const float high = x.high + y.high, of_y = high - x.high;
  const float lost = (x.high - (high - of_y)) + (y.high - of_y);
  return {high, lost + (x.low + y.low)};
}
constexpr Twice twice(double x) { return {static_cast<float>(x), static_cast<float>(x - static_cast<float>(x))}; }

/// |x|, but at most `most`, beyond which what follows is 0 in f32 whatever it is.
__device__ __forceinline__ float size_up_to(float x, float most) { return fminf(fabsf(x), most); }

/// x / (1 + e^-y) for x >= 0 and x e^-y / (1 + e^-y) below 0, with e^-y given. A NaN of x stays, and -Inf gives NaN.
__device__ __forceinline__ float times_sigmoid(float x, float e) { return (x < 0.f ? x * e : x) / (1.f + e); }

__device__ __forceinline__ float silu(float x) { return times_sigmoid(x, expf(-fabsf(x))); }

/// The approximation with tanh, as x sigmoid(2u): near -3, 1 + tanh would leave few bits. 2u is |x| (1.6 + 0.07 x^2).
__device__ __forceinline__ float gelu_tanh(float x) {
  constexpr double kLinear = 1.5957691216057308;  // 2 sqrt(2 / pi)
  constexpr Twice kOne = twice(kLinear), kThree = twice(kLinear * 0.044715);
  const float size = size_up_to(x, 12.f);
  const Twice u2 = product(sum(kOne, product(product(size, size), kThree)), size);
  const float e = expf(-u2.high);
  return times_sigmoid(x, fmaf(-e, u2.low, e));
}

/// x erfc(-x / sqrt 2) / 2. What the rounding of |x| / sqrt 2 left out moves erfc by its derivative, -2 / sqrt(pi)
/// e^(-z^2).
__device__ __forceinline__ float gelu_erf(float x) {
  constexpr Twice kRoot = twice(0.70710678118654752);
  const Twice z = product(kRoot, size_up_to(x, 16.f));
  const float half_erfc = 0.5f * fmaf(-1.1283791671f * expf(-z.high * z.high), z.low, erfcf(z.high));
  return x * (x < 0.f ? half_erfc : 1.f - half_erfc);
}

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
