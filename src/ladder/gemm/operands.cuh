// src/ladder/gemm/operands.cuh: the three matrices as the GPU's kernels see them.
#pragma once

#include "ladder/gemm/step.hpp"
#include "ladder/head.hpp"
#include "ladder/launch.cuh"

namespace falchion::ladder::gemm::on_gpu {

/// C = A B: A[i][l] is A's element in row i and column l. Rows lie a stride apart.
template <class T>
struct Operands {
  int m, n, k;
  Head<const T> A, B;
  Head<T> C;
};

template <class T>
Operands<T> operands_of(const Problem& p, const Tensors& t) {
  return {
      p.m, p.n, p.k, {static_cast<const T*>(t.a), p.k}, {static_cast<const T*>(t.b), p.n}, {static_cast<T*>(t.c), p.n}};
}

}  // namespace falchion::ladder::gemm::on_gpu
