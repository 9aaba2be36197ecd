// src/sm80/gemm/few.cuh: the variants of kind `few`, in f32, for few rows of A, where reading B takes the time: a tile
// has only 16 rows of A.
#pragma once

#include "sm80/gemm/kernel.cuh"

namespace falchion::sm80 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_few() {
  return gemm_entry<GemmConfig<Element, GemmKind::few32>, false>();
}

}  // namespace falchion::sm80
