// src/sm90/gemm/slim.cuh: the variants of kind `slim`: kind `wide` with tiles of 128 columns, for small or narrow
// problems, which need more CTAs with less work each.
#pragma once

#include "sm90/gemm/kernel.cuh"

namespace falchion::sm90 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_slim() {
  return {launch_gemm_as_it_lies<Element, GemmKind::slim>, gemm_facts(GemmKind::slim)};
}

}  // namespace falchion::sm90
