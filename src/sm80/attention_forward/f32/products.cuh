// src/sm80/attention_forward/f32/products.cuh: the two products of the f32 kernel, by FFMA. The order of the additions
// is chosen here, because it decides the error of a sum.
#pragma once

#include <algorithm>
#include <cute/tensor.hpp>

#include "base/host_device.hpp"

namespace falchion::sm80 {

using namespace gpu;

using namespace cute;

/// Adds the terms k to k + 3 of A B to C (rows, columns), one after another.
template <int kStride, class C, class LoadB>
FALCHION_DEVICE void multiply_4(C& c, const float* a, int k, LoadB load_b) {
  constexpr int kRows = decltype(size<0>(c))::value, kColumns = decltype(size<1>(c))::value;
  float x[kRows][4], b[4][kColumns];
  CUTE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    *reinterpret_cast<float4*>(x[r]) = *reinterpret_cast<const float4*>(a + r * 2 * kStride + k);
  }
  load_b(k, b);
  CUTE_UNROLL
  for (int i = 0; i < 4; ++i) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CUTE_UNROLL
      for (int j = 0; j < kColumns; ++j) c(r, j) = __fmaf_rn(x[r][i], b[i][j], c(r, j));
    }
  }
}

/// Computes C (rows, columns) += A B over kDepth terms. `a` points to this thread's first row of A, and its next row
/// lies 2 kStride floats further. load_b(k, b) loads b[i][column] = B[k + i][column]. With kTerms 1 the terms are added
/// to C one after another. With kTerms 4 or 8 that many terms are summed first and their sum is added to C, because
/// each addition to a long sum rounds at the magnitude of that sum.
template <int kTerms, int kDepth, int kStride, class C, class LoadB>
FALCHION_DEVICE void multiply_exact(C& c, const float* a, LoadB load_b) {
#pragma unroll 1
  for (int k = 0; k < kDepth; k += std::max(kTerms, 4)) {
    if constexpr (kTerms == 1) {
      multiply_4<kStride>(c, a, k, load_b);
    } else {
      auto sum = make_fragment_like(c);
      clear(sum);
      CUTE_UNROLL
      for (int i = 0; i < kTerms; i += 4) multiply_4<kStride>(sum, a, k + i, load_b);
      CUTE_UNROLL
      for (int i = 0; i < size(c); ++i) c(i) += sum(i);
    }
  }
}

}  // namespace falchion::sm80
