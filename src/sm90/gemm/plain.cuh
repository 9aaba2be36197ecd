// src/sm90/gemm/plain.cuh: the variants of kind `plain`: a cluster of two CTAs with the same columns. Tile `wide`, of
// 256 columns, is for large problems; `broad` and `medium` for those where the last wave of wider tiles would leave
// much of the device idle; `slim` for small or narrow ones, which need more CTAs with less work each; and `narrow`, of
// half the rows, for problems so small that `slim` would leave half of the SMs idle: it makes 128 CTAs of 1024 x 1024
// instead of 64. The plan weighs them (src/plan/gemm_gpu.cpp).
#pragma once

#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // products of 224 columns
#include "sm90/gemm/kernel.cuh"

namespace falchion::sm90 {

template <class Element, int, VariantTile kTile>
constexpr gpu::GemmKernel gemm_plain() {
  constexpr auto kFacts = gemm_facts(GemmKind::bits16, kTile);
  if constexpr (gemm_tiles(GemmKind::bits16, kTile).only_along_k())
    return {launch_gemm<GemmConfig<Element, Major::k, Major::k, kTile>>, kFacts};
  else
    return {launch_gemm_as_it_lies<Element, kTile>, kFacts};
}

}  // namespace falchion::sm90
