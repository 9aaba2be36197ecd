// src/ladder/gemm/01_naive.cpp: the product as it is written on a blackboard, an element of C after the other. It is
// f32 on the CPU.
#include "ladder/gemm/step.hpp"

#include <cstdint>

namespace falchion::ladder::gemm::on_cpu {
namespace {

Status run(const Problem& p, const Tensors& t, Stream) {
  const auto *A = static_cast<const float*>(t.a), *B = static_cast<const float*>(t.b);
  auto* C = static_cast<float*>(t.c);
#pragma omp parallel for
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l) sum += A[i * p.k + l] * B[l * p.n + j];
      C[i * p.n + j] = sum;
    }
  }
  return {};
}

}  // namespace

extern const Step naive;
const Step naive = {
    "naive",
    "One element after the other",
    "01_naive.cpp",
    "This step is the definition. Each element is one sum that adds product after product, so each addition waits four "
    "cycles for the one before. And the sum walks down a column of B, where the next number lies a whole row further "
    "on: "
    "each is in another line of the cache, and of a line that was fetched 4 of 64 bytes are used before it is lost.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::gemm::on_cpu
