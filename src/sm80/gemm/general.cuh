// src/sm80/gemm/general.cuh: the variants of kind `general`, for operands with any strides.
#pragma once

#include "sm80/gemm/kernel.cuh"

namespace falchion::sm80 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_general() {
  return gemm_entry<GemmConfig<Element>, true>();
}

}  // namespace falchion::sm80
