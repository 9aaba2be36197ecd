// src/sm90/gemm/narrow.cuh: the variants of kind `narrow`: kind `wide` with tiles of 64 columns, for problems so small
// that wider ones would leave most of the device idle: 1024 x 1024 are 64 CTAs of 128 columns, and 128 of 64.
#pragma once

#include "sm90/gemm/kernel.cuh"

namespace falchion::sm90 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_narrow() {
  return {launch_gemm_as_it_lies<Element, GemmKind::narrow>, gemm_facts(GemmKind::narrow)};
}

}  // namespace falchion::sm90
