// src/sm90/gemm/medium.cuh: the variants of kind `medium`: kind `wide` with tiles of 192 columns, for problems where
// the last wave of wider tiles would leave much of the device idle.
#pragma once

#include "sm90/gemm/kernel.cuh"

namespace falchion::sm90 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_medium() {
  return {launch_gemm_as_it_lies<Element, GemmKind::medium>, gemm_facts(GemmKind::medium)};
}

}  // namespace falchion::sm90
