// src/ladder/gemm/03_microkernel.cpp: the blocks of step 02 with a product of slivers that fills the registers of the
// processor's widest vectors.
#include "ladder/gemm/packed.hpp"

namespace falchion::ladder::gemm::on_cpu {
namespace {

/// Vectors as GCC and Clang have them: the same source for each width.
template <int kWidth>
using Vector __attribute__((vector_size(kWidth * sizeof(float)))) = float;

/// kDown x 2 vectors of sums. A number of A is multiplied with two vectors of B at a time.
template <int kDown, int kWidth>
inline __attribute__((always_inline)) void multiply(const Sliver<kDown, 2 * kWidth>& s) {
  using V = Vector<kWidth>;
  V sum[kDown][2] = {};
  for (int l = 0; l < s.depth; ++l) {
    const V *const b = reinterpret_cast<const V*>(s.b + l * 2 * kWidth), b0 = b[0], b1 = b[1];
#pragma GCC unroll 16
    for (int i = 0; i < kDown; ++i) {
      sum[i][0] += s.a[l * kDown + i] * b0;
      sum[i][1] += s.a[l * kDown + i] * b1;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kDown; ++i) {
    if (i >= s.rows) break;
    for (int j = 0; j < s.columns; ++j) s.c[i * s.stride + j] += sum[i][j / kWidth][j % kWidth];
  }
}

// Registers: 16 of 4 numbers with SSE2, of 8 with AVX2, 32 of 16 with AVX-512; 32 of 4 on ARM.
#if defined(__x86_64__)
__attribute__((target("avx512f"))) void multiply_avx512(const Sliver<14, 32>& s) { multiply<14, 16>(s); }
__attribute__((target("avx2,fma"))) void multiply_avx2(const Sliver<6, 16>& s) { multiply<6, 8>(s); }
#endif
void multiply_any(const Sliver<6, 8>& s) { multiply<6, 4>(s); }

Status run(const Problem& p, const Tensors& t, Stream) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_blocks<14, 32>(p, t, multiply_avx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return multiply_blocks<6, 16>(p, t, multiply_avx2);
#endif
  return multiply_blocks<6, 8>(p, t, multiply_any);
}

}  // namespace

extern const Step microkernel;
const Step microkernel = {
    "microkernel",
    "Vectors as wide as there are",
    "03_microkernel.cpp",
    "A core starts two multiply-adds of vectors a cycle and two loads, and each multiply-add takes four cycles. So at "
    "least 8 sums have to be independent, and few loads may go to each. With 32 registers of 16 numbers (AVX-512) 14 "
    "rows x 2 vectors are 28 sums; two registers hold a row of B's sliver, and a number of A is broadcast on its way: "
    "16 "
    "loads for 28 multiply-adds. With 16 registers (AVX2) it is 6 rows. The same source is compiled for each width, "
    "and "
    "the processor is asked which it has.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::gemm::on_cpu
