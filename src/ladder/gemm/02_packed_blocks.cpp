// src/ladder/gemm/02_packed_blocks.cpp: blocks that stay in the caches, packed so that they are read in the order in
// which they lie. It is plain C++.
#include "ladder/gemm/packed.hpp"

namespace falchion::ladder::gemm::on_cpu {
namespace {

constexpr int kDown = 4, kAcross = 8;

/// 32 sums, which the compiler keeps in registers.
void multiply(const Sliver<kDown, kAcross>& s) {
  float sum[kDown][kAcross] = {};
  for (int l = 0; l < s.depth; ++l)
    for (int i = 0; i < kDown; ++i)
      for (int j = 0; j < kAcross; ++j) sum[i][j] += s.a[l * kDown + i] * s.b[l * kAcross + j];
  for (int i = 0; i < s.rows; ++i)
    for (int j = 0; j < s.columns; ++j) s.c[i * s.stride + j] += sum[i][j];
}

Status run(const Problem& p, const Tensors& t, Stream) { return multiply_blocks<kDown, kAcross>(p, t, multiply); }

}  // namespace

extern const Step packed_blocks;
const Step packed_blocks = {
    "packed-blocks",
    "Blocks in the caches, packed",
    "02_packed_blocks.cpp",
    "A thread has a block of C and copies what it needs of A and B, 256 deep, in the order in which it will be read: 4 "
    "rows of A side by side, and 8 columns of B. The copy of B's block stays in the second-level cache and is read "
    "once "
    "for each 4 rows; 8 columns of it stay in the first. The 32 sums of 4 x 8 elements are independent, so no addition "
    "waits, and each number that is fetched serves 4 or 8 multiplications. The compiler makes vectors of them.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::gemm::on_cpu
