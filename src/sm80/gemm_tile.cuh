// src/sm80/gemm_tile.cuh: the variants of kind `tile`, for operands whose rows or whose k lie in memory so that 16
// bytes of them can be moved at a time; in f32 it must be k.
#pragma once

#include "sm80/gemm.cuh"

namespace falchion::sm80 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_tile() {
  return gemm_entry<Element, false>();
}

}  // namespace falchion::sm80
