// src/sm80/gemm/tile.cuh: the variants of kind `tile`, for operands whose rows or whose k lie in memory so that 16
// bytes of them can be moved at a time.
#pragma once

#include "sm80/gemm/kernel.cuh"

namespace falchion::sm80 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_tile() {
  return gemm_entry<TileConfig<Element>, false>();
}

}  // namespace falchion::sm80
