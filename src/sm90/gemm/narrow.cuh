// src/sm90/gemm/narrow.cuh: the variants of kind `narrow`: kind `wide` with tiles of 64 columns, for problems so small
// that wider tiles would leave most SMs idle: 1024 x 1024 is 64 CTAs with tiles of 128 columns, and 128 with 64.
#pragma once

#include "sm90/gemm/kernel.cuh"

namespace falchion::sm90 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_narrow() {
  return {launch_gemm_as_it_lies<Element, GemmKind::narrow>, gemm_facts(GemmKind::narrow)};
}

}  // namespace falchion::sm90
