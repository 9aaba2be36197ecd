// src/sm90/gemm/wide.cuh: the variants of kind `wide`, for large problems: a cluster of two CTAs with the same columns.
#pragma once

#include "sm90/gemm/kernel.cuh"

namespace falchion::sm90 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_wide() {
  return {launch_gemm_as_it_lies<Element, GemmKind::wide>, gemm_facts(GemmKind::wide)};
}

}  // namespace falchion::sm90
