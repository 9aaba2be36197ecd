// src/gpu/blocks/activation.cuh: the activations of a GEMM on a GPU. src/ref/gemm.cpp defines them. The relative error
// of each result is a few units of f32, also far below 0, where it is tiny; cpu/blocks/activation.hpp, the same for the
// CPU, explains why exponents are sums of two numbers.
#pragma once

#include <cuda_runtime.h>

#include "args/gemm_call.hpp"
#include "base/host_device.hpp"

namespace falchion {

/// high + low: high is rounded to f32, low is the rounding error.
struct Twice {
  float high, low;
};

FALCHION_DEVICE Twice product(float x, float y) {
  const float high = __fmul_rn(x, y);  // not contracted into a multiply-add
  return {high, fmaf(x, y, -high)};
}
FALCHION_DEVICE Twice product(Twice x, float y) {
  const Twice out = product(x.high, y);
  return {out.high, fmaf(x.low, y, out.low)};
}
FALCHION_DEVICE Twice product(Twice x, Twice y) {
  const Twice out = product(x, y.high);
  return {out.high, fmaf(x.high, y.low, out.low)};
}
/// Knuth's exact sum of two numbers.
FALCHION_DEVICE Twice sum(Twice x, Twice y) {
  const float high = x.high + y.high, of_y = high - x.high;
  const float lost = (x.high - (high - of_y)) + (y.high - of_y);
  return {high, lost + (x.low + y.low)};
}
constexpr Twice twice(double x) { return {static_cast<float>(x), static_cast<float>(x - static_cast<float>(x))}; }

/// min(|x|, most). Larger numbers give 0 in the exponential that follows.
FALCHION_DEVICE float size_up_to(float x, float most) { return fminf(fabsf(x), most); }

/// x / (1 + e^-y) for x >= 0 and x e^-y / (1 + e^-y) below 0, with e^-y given. A NaN of x stays, and -Inf gives NaN.
FALCHION_DEVICE float times_sigmoid(float x, float e) { return (x < 0.f ? x * e : x) / (1.f + e); }

FALCHION_DEVICE float silu(float x) { return times_sigmoid(x, expf(-fabsf(x))); }

/// The approximation with tanh, as x sigmoid(2u): computed as 1 + tanh it would lose most bits near -3. 2u is |x| (1.6
/// + 0.07 x^2).
FALCHION_DEVICE float gelu_tanh(float x) {
  constexpr double kLinear = 1.5957691216057308;  // 2 sqrt(2 / pi)
  constexpr Twice kOne = twice(kLinear), kThree = twice(kLinear * 0.044715);
  const float size = size_up_to(x, 12.f);
  const Twice u2 = product(sum(kOne, product(product(size, size), kThree)), size);
  const float e = expf(-u2.high);
  return times_sigmoid(x, fmaf(-e, u2.low, e));
}

/// x erfc(-x / sqrt 2) / 2. The rounding error of |x| / sqrt 2 is corrected with erfc's derivative, -2 / sqrt(pi)
/// e^(-z^2).
FALCHION_DEVICE float gelu_erf(float x) {
  constexpr Twice kRoot = twice(0.70710678118654752);
  const Twice z = product(kRoot, size_up_to(x, 16.f));
  const float half_erfc = 0.5f * fmaf(-1.1283791671f * expf(-z.high * z.high), z.low, erfcf(z.high));
  return x * (x < 0.f ? half_erfc : 1.f - half_erfc);
}

/// relu, which keeps NaN.
FALCHION_DEVICE float relu(float x) { return x < 0.f ? 0.f : x; }

/// z = activation(z), element by element. For swiglu this is the gate's activation; the caller multiplies by the other
/// half.
template <int kCount>
FALCHION_DEVICE void activate(GemmActivation activation, float (&z)[kCount]) {
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

// The same for results that are rounded to 16 bits: a relative error of 2^-16, in a third of the instructions. They are
// limited by the unit for 2^x and 1 / x, which takes 4 lanes of a warp a cycle, so two numbers share a division.

/// 2^x for x from -250 to 0 with a relative error of 2^-21, as the square of 2^(x / 2). The instruction flushes results
/// below 2^-126 to 0 here; where it does not, three more instructions guard it.
FALCHION_DEVICE float brief_exp2(float x) {
  float root;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(0.5f * x));
  return root * root;
}
/// x0 = 1 / x0 and x1 = 1 / x1, for numbers from 1 to 2^60.
FALCHION_DEVICE void brief_reciprocals(float& x0, float& x1) {
  float both;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(both) : "f"(x0 * x1));
  const float of_x0 = both * x1;
  x1 = both * x0;
  x0 = of_x0;
}
/// x / (1 + 2^y) for x >= 0 and x 2^y / (1 + 2^y) below 0. y is never NaN, so a NaN of one x does not reach the other.
FALCHION_DEVICE void brief_times_sigmoid(float& x0, float& x1, float y0, float y1) {
  const float e0 = brief_exp2(y0), e1 = brief_exp2(y1);
  float s0 = 1.f + e0, s1 = 1.f + e1;
  brief_reciprocals(s0, s1);
  x0 *= (x0 < 0.f ? e0 : 1.f) * s0;
  x1 *= (x1 < 0.f ? e1 : 1.f) * s1;
}

FALCHION_DEVICE void brief_silu(float& x0, float& x1) {
  constexpr float kLog2e = 1.4426950408889634f;
  brief_times_sigmoid(x0, x1, -kLog2e * size_up_to(x0, 128.f), -kLog2e * size_up_to(x1, 128.f));
}

/// 2u is |x| (1.6 + 0.07 x^2), here times -log2 e.
FALCHION_DEVICE void brief_gelu_tanh(float& x0, float& x1) {
  constexpr auto kOne = static_cast<float>(-1.5957691216057308 * 1.4426950408889634);
  constexpr auto kThree = static_cast<float>(-1.5957691216057308 * 1.4426950408889634 * 0.044715);
  const auto y = [](float x) {
    const float size = size_up_to(x, 12.f);
    return size * fmaf(size * size, kThree, kOne);
  };
  brief_times_sigmoid(x0, x1, y(x0), y(x1));
}

/// With z = |x| / sqrt 2, e^(z^2) erfc(z) is a polynomial of t = 1 / (1 + 0.44 z), fitted with a relative error of
/// 2^-17.5 for z from 0 to 11.4.
FALCHION_DEVICE void brief_gelu_erf(float& x0, float& x1) {
  const float size0 = size_up_to(x0, 16.f), size1 = size_up_to(x1, 16.f);
  constexpr float kOfT = 0.44f * 0.70710678118654752f;
  float t0 = fmaf(kOfT, size0, 1.f), t1 = fmaf(kOfT, size1, 1.f);
  brief_reciprocals(t0, t1);
  const auto gelu = [](float x, float size, float t) {
    float p = fmaf(t, -0.146093665f, 0.350619030f);
    p = fmaf(t, p, 0.0407669918f);
    p = fmaf(t, p, 0.263567796f);
    p = fmaf(t, p, 0.242574186f);
    p = fmaf(t, p, 0.248560566f);
    const float half_erfc = 0.5f * t * p * brief_exp2(-0.72134752f * size * size);
    return x * (x < 0.f ? half_erfc : 1.f - half_erfc);
  };
  x0 = gelu(x0, size0, t0);
  x1 = gelu(x1, size1, t1);
}

/// activate() at 16-bit precision for the kCount numbers z(0), z(1), ...; the caller handles swiglu.
template <int kCount, class Numbers>
FALCHION_DEVICE void activate_for_16_bits(GemmActivation activation, Numbers& z) {
  const auto each_two = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) f(z(i), z(i + 1));
  };
  switch (activation) {
    case GemmActivation::relu:
      return each_two([](float& x, float& y) {
        x = relu(x);
        y = relu(y);
      });
    case GemmActivation::gelu_tanh: return each_two([](float& x, float& y) { brief_gelu_tanh(x, y); });
    case GemmActivation::gelu_erf: return each_two([](float& x, float& y) { brief_gelu_erf(x, y); });
    case GemmActivation::silu: return each_two([](float& x, float& y) { brief_silu(x, y); });
    case GemmActivation::none:
    case GemmActivation::swiglu: return;
  }
}

}  // namespace falchion
