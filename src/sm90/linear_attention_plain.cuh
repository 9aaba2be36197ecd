// src/sm90/linear_attention_plain.cuh: which kernels a row of Hopper's runs: bf16 as it is, f32 as two f16.
#pragma once

#include <algorithm>
#include <type_traits>

#include "gpu/linear_attention_kernel.hpp"
#include "sm90/linear_attention_halves_roles.cuh"
#include "sm90/linear_attention_roles.cuh"
#include "sm90/linear_attention_wide.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
using LinearPlainRoles = std::conditional_t<std::is_same_v<Element, float>, LinearHalvesRoles<LinearHalvesConfig<kD>>,
                                            LinearRoles<LinearAttentionConfig<Element, kD>>>;

/// First the sweeps of which a CTA has all columns of a head, then the others, as SMs become free. They write different
/// tensors.
template <class Roles>
int launch_wide_and_others(const LinearAttentionArgs& a, const LinearSweeps& sweeps, void* stream) {
  LinearSweeps wide, others = sweeps;
  if (a.wide > sweeps.count || (a.wide > 0 && a.segments > 1)) return cudaErrorInvalidConfiguration;
  wide.count = a.wide, others.count = sweeps.count - a.wide;
  std::copy_n(sweeps.sweep + others.count, wide.count, wide.sweep);
  for (const LinearSweep& sweep : wide.sweep)
    if (sweep.initial.data != nullptr || sweep.final.data != nullptr) return cudaErrorInvalidConfiguration;
  int error = cudaSuccess;
  if (wide.count > 0) error = launch_linear_attention<LinearWideRoles, f32>(a, wide, stream);
  if (error == cudaSuccess && others.count > 0)
    error = launch_linear_attention<Roles, f32>(a, others, stream, wide.count > 0);
  return error;
}

/// The row of the table. kSweepsOf(args) says what the CTAs do, kSweeps side by side.
template <class Element, int kD, int kSweeps, LinearSweeps (*kSweepsOf)(const LinearAttentionArgs&)>
constexpr gpu::LinearAttentionKernel linear_attention_plain() {
  using Roles = LinearPlainRoles<Element, kD>;
  constexpr bool kWide = std::is_same_v<Element, float> && kD == LinearWideConfig::kD;
  gpu::LinearAttentionKernel row = linear_attention_row<typename Roles::Config>(
      [](const LinearAttentionArgs& a, void* stream) {
        if constexpr (kWide) return launch_wide_and_others<Roles>(a, kSweepsOf(a), stream);
        return launch_linear_attention<Roles, Element>(a, kSweepsOf(a), stream);
      },
      kSweeps);
  if (kWide) row.facts.wide_d = kD;
  return row;
}

}  // namespace falchion::sm90
