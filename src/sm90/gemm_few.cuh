// src/sm90/gemm_few.cuh: the variants of kind `few`, for few rows of A, where the time is that of reading B. A and B
// change places: the 128 rows of the product in a CTA are rows of B, so that no tile is mostly empty, and its columns
// are the rows of A. 128 KB of B are in flight in each SM.
#pragma once

#include <utility>

#include "sm90/gemm.cuh"

namespace falchion::sm90 {

template <class Element, int>
constexpr gpu::GemmKernel gemm_few() {
  const auto launch = [](const GemmArgs& a, void* stream) -> int {
    GemmArgs turned = a;
    std::swap(turned.a, turned.b);
    std::swap(turned.a_major, turned.b_major);
    std::swap(turned.tiles_m, turned.tiles_n);
    return launch_gemm_as_it_lies<Element, GemmKind::few>(turned, stream);
  };
  return {launch, gemm_facts(GemmKind::few)};
}

}  // namespace falchion::sm90
