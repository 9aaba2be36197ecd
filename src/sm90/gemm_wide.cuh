// src/sm90/gemm_wide.cuh: the variants of kind `wide`, for large problems: a cluster of two CTAs with the same columns.
// Operands of e4m3 must lie along k: so wgmma has it.
#pragma once

#include "sm90/gemm.cuh"

namespace falchion::sm90 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_wide() {
  if constexpr (sizeof(Element) == 1)
    return {launch_gemm<GemmConfig<Element, Major::k, Major::k, GemmKind::bytes>>, gemm_facts(GemmKind::bytes)};
  else
    return {launch_gemm_as_it_lies<Element, GemmKind::wide>, gemm_facts(GemmKind::wide)};
}

}  // namespace falchion::sm90
