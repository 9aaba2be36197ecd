// src/sm80/gemm/few.cuh: the variants of kind `few`, in f32: a tile has 16 rows of A, so that little of it is empty
// where A has few rows, and the time is that of reading B.
#pragma once

#include "sm80/gemm/kernel.cuh"

namespace falchion::sm80 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_few() {
  return gemm_entry<GemmConfig<Element, GemmKind::few32>, false>();
}

}  // namespace falchion::sm80
