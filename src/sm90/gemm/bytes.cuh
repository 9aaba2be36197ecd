// src/sm90/gemm/bytes.cuh: the variants of kind `bytes`, for e4m3 and i8. Both operands must be contiguous along k,
// since wgmma accepts 8-bit operands no other way.
#pragma once

#include "sm90/gemm/kernel.cuh"

namespace falchion::sm90 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_bytes() {
  constexpr GemmKind kKind = std::is_same_v<Element, i8> ? GemmKind::i8 : GemmKind::e4m3;
  return {launch_gemm<GemmConfig<Element, Major::k, Major::k, kKind>>, gemm_facts(kKind)};
}

}  // namespace falchion::sm90
