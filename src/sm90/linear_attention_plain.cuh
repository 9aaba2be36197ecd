// src/sm90/linear_attention_plain.cuh: which kernel a row of Hopper's runs: bf16 as it is, f32 as two f16.
#pragma once

#include <type_traits>

#include "sm90/linear_attention_halves_roles.cuh"
#include "sm90/linear_attention_roles.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
using LinearPlainRoles = std::conditional_t<std::is_same_v<Element, float>, LinearHalvesRoles<LinearHalvesConfig<kD>>,
                                            LinearRoles<LinearAttentionConfig<Element, kD>>>;

/// The row of the table. kSweepsOf(args) says what the CTAs do, kSweeps side by side.
template <class Element, int kD, int kSweeps, LinearSweeps (*kSweepsOf)(const LinearAttentionArgs&)>
constexpr gpu::LinearAttentionKernel linear_attention_plain() {
  using Roles = LinearPlainRoles<Element, kD>;
  gpu::LinearAttentionKernel row = sm80::sized_linear_attention_row<typename Roles::Config>(kSweeps);
  row.launch = [](const LinearAttentionArgs& a, void* stream) {
    return launch_linear_attention<Roles, Element>(a, kSweepsOf(a), stream);
  };
  row.workspace = [](const LinearAttentionArgs& a) {
    return segments_workspace<typename Roles::Config>(a, kSweepsOf(a));
  };
  return row;
}

}  // namespace falchion::sm90
