// src/sm90/gemm/bytes.cuh: the variants of kind `bytes`, for e4m3 and i8. Both operands must be contiguous along k,
// since wgmma accepts 8-bit operands no other way.
#pragma once

#include "sm90/gemm/kernel.cuh"

namespace falchion::sm90 {

template <class Element, int, VariantTile kTile = VariantTile::usual>
constexpr gpu::GemmKernel gemm_bytes() {
  return {launch_gemm<GemmConfig<Element, Major::k, Major::k, kTile>>, gemm_facts(kTileKind<Element>, kTile)};
}

}  // namespace falchion::sm90
