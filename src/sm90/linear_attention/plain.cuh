// src/sm90/linear_attention/plain.cuh: the kernels of Hopper's variants of linear attention. bf16 numbers are
// multiplied as they are; each f32 number is split into two f16 numbers. docs/design/linear_attention.md describes
// both.
#pragma once

#include <algorithm>
#include <type_traits>

#include "gpu/linear_attention/entry.hpp"
#include "sm90/linear_attention/halves/roles.cuh"
#include "sm90/linear_attention/roles.cuh"
#include "sm90/linear_attention/wide/kernel.cuh"

namespace falchion::sm90 {

template <class Element, int kD>
using LinearPlainRoles = std::conditional_t<std::is_same_v<Element, float>, LinearHalvesRoles<LinearHalvesConfig<kD>>,
                                            LinearRoles<LinearAttentionConfig<Element, kD>>>;

/// f32 at d 128: launches the sweeps in wide CTAs first, each of which has all columns of a head, and then the other
/// sweeps, whose CTAs start as SMs become free. The two kernels may overlap, because they write different tensors.
template <class Roles>
int launch_wide_and_others(const LinearAttentionArgs& a, const LinearSweeps& sweeps, void* stream) {
  LinearSweeps wide, others = sweeps;
  if (a.wide > sweeps.count || (a.wide > 0 && a.segments > 1)) return cudaErrorInvalidConfiguration;
  wide.count = a.wide;
  others.count = sweeps.count - a.wide;
  std::copy_n(sweeps.sweep + others.count, wide.count, wide.sweep);
  for (const LinearSweep& sweep : wide.sweep)
    if (sweep.initial.data != nullptr || sweep.final.data != nullptr) return cudaErrorInvalidConfiguration;
  int error = cudaSuccess;
  if (wide.count > 0) error = launch_linear_attention<LinearWideRoles, f32>(a, wide, stream);
  if (error == cudaSuccess && others.count > 0)
    error = launch_linear_attention<Roles, f32>(a, others, stream, wide.count > 0);
  return error;
}

/// The variant's entry in the table of kernels. kSweepsOf(args) describes the kSweeps sweeps that run side by side.
template <class Element, int kD, int kSweeps, LinearSweeps (*kSweepsOf)(const LinearAttentionArgs&)>
constexpr gpu::LinearAttentionKernel linear_attention_plain() {
  using Roles = LinearPlainRoles<Element, kD>;
  constexpr bool kWide = std::is_same_v<Element, float> && kD == LinearWideConfig::kD;
  gpu::LinearAttentionKernel kernel = linear_attention_kernel_of<typename Roles::Config>(
      [](const LinearAttentionArgs& a, void* stream) {
        if constexpr (kWide) return launch_wide_and_others<Roles>(a, kSweepsOf(a), stream);
        return launch_linear_attention<Roles, Element>(a, kSweepsOf(a), stream);
      },
      kSweeps);
  if (kWide) kernel.facts.wide_d = kD;
  return kernel;
}

}  // namespace falchion::sm90
