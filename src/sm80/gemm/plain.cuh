// src/sm80/gemm/plain.cuh: the variants of kind `plain`, for operands whose rows or whose k can be loaded 16 bytes at a
// time. In f32 there is a tile `few` of 16 rows of A, for problems where reading B takes the time.
#pragma once

#include "sm80/gemm/kernel.cuh"

namespace falchion::sm80 {

template <class Element, int, VariantTile kTile = VariantTile::usual>
constexpr gpu::GemmKernel gemm_plain() {
  return gemm_entry<GemmConfig<Element, kTile>, false>();
}

}  // namespace falchion::sm80
