// src/sm90/linear_attention_plain.cuh: which kernels a row of Hopper's runs: bf16 as it is, f32 as two f16.
#pragma once

#include <type_traits>

#include "sm90/linear_attention_halves_launch.cuh"
#include "sm90/linear_attention_launch.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
using LinearPlainConfig =
    std::conditional_t<std::is_same_v<Element, float>, LinearHalvesConfig<kD>, LinearAttentionConfig<Element, kD>>;

template <class Element, int kD>
int launch_linear_plain(LinearAttentionArgs a, const LinearSweeps& sweeps, void* stream) {
  using Config = LinearPlainConfig<Element, kD>;
  if constexpr (std::is_same_v<Element, float>)
    return launch_linear_attention<Config, float>(linear_attention_sums_of_halves<Config>,
                                                  linear_attention_halves<Config>, a, sweeps, stream);
  else
    return launch_linear_attention<Config, Element>(linear_attention_sums<Config>, linear_attention_chunks<Config>, a,
                                                    sweeps, stream);
}

}  // namespace falchion::sm90
