// src/sm90/attention_forward/fp8.cuh: the forward variants of kind fp8 on Hopper: P V in e4m3, Q K^T in e4m3 or int8.
// docs/design/sm90_fp8.md describes the kernel.
#pragma once

// Products of 136 columns. It must stand before the first header of CuTe.
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED

#include "base/host_device.hpp"
#include "sm90/attention_forward/fp8/kernel.cuh"
#include "sm90/attention_forward/fp8/turn_v.cuh"
#include "sm90/attention_forward/launch.cuh"

namespace falchion::sm90 {

using namespace gpu;

using i8 = std::int8_t;

/// A kernel before turns V. Where the keys are split, a third one combines the parts.
template <class Element, int kD>
constexpr gpu::AttentionKernel attention_forward_fp8() {
  using Config = Fp8Config<Element, kD>;
  return attention_kernel_of<Config, bf16>([](const AttentionArgs& a, void* stream) {
    AttentionArgs loaded = a;
    const int error = launch_turn_v<kD>(a, &loaded.v, stream);
    if (error != cudaSuccess) return error;
    const int second = launch_attention_forward<Config, Fp8Consumer<Config>>(a, loaded, stream);
    if (second != cudaSuccess || a.splits == 1) return second;
    return a.type_o == Number::f16 ? launch_attention_combine<f16>(a, stream)
                                   : launch_attention_combine<bf16>(a, stream);
  });
}

}  // namespace falchion::sm90
