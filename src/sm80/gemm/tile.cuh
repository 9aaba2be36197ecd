// src/sm80/gemm/tile.cuh: the variants of kind `tile`, for operands whose rows or whose k can be loaded 16 bytes at a
// time.
#pragma once

#include "sm80/gemm/kernel.cuh"

namespace falchion::sm80 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_tile() {
  return gemm_entry<TileConfig<Element>, false>();
}

}  // namespace falchion::sm80
