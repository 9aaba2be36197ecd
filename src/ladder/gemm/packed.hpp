// src/ladder/gemm/packed.hpp: the blocks of a product on a CPU, which steps 02 and 03 share: what is packed where, and
// which thread does what (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ladder/gemm/step.hpp"

namespace falchion::ladder::gemm::on_cpu {

/// A thread has a block of C of kRows x kColumns. For each kDepth columns of A it packs a block of B, which stays in
/// the second-level cache, and then slivers of A. Slivers of B, kDepth x kAcross, are what the first-level cache holds.
inline constexpr int kRows = 128, kColumns = 256, kDepth = 256;

/// C's rows x columns at `c` += a b. a: for each of `depth` columns kDown numbers; b: for each row kAcross numbers.
template <int kDown, int kAcross>
struct Sliver {
  const float *a, *b;
  int depth;
  float* c;
  std::int64_t stride;
  int rows, columns;
};

/// Packs rows x depth of a matrix whose element (i, l) is from[i * down + l * across], into slivers of kWide rows: all
/// rows of a column are neighbours. What is missing in the last sliver is 0.
template <int kWide>
void pack(const float* from, std::int64_t down, std::int64_t across, int rows, int depth, float* to) {
  for (int i0 = 0; i0 < rows; i0 += kWide)
    for (int l = 0; l < depth; ++l)
      for (int i = i0; i < i0 + kWide; ++i) *to++ = i < rows ? from[i * down + l * across] : 0;
}

/// The room in which a thread packs.
template <int kDown, int kAcross>
struct Packed {
  static constexpr int round_up(int x, int to) { return (x + to - 1) / to * to; }
  alignas(64) float a[round_up(kRows, kDown) * kDepth], b[round_up(kColumns, kAcross) * kDepth];
};

/// C's block at (i0, j0), sliver by sliver: multiply(sliver) adds the product of two of them.
template <int kDown, int kAcross, class Multiply>
void multiply_block(const Problem& p, const Tensors& t, int i0, int j0, Packed<kDown, kAcross>& packed,
                    const Multiply& multiply) {
  const auto *A = static_cast<const float*>(t.a), *B = static_cast<const float*>(t.b);
  const int rows = std::min(kRows, p.m - i0), columns = std::min(kColumns, p.n - j0);
  float* const C = static_cast<float*>(t.c) + std::int64_t{i0} * p.n + j0;
  for (int i = 0; i < rows; ++i) std::fill_n(C + std::int64_t{i} * p.n, columns, 0.f);
  for (int l0 = 0; l0 < p.k; l0 += kDepth) {
    const int depth = std::min(kDepth, p.k - l0);
    pack<kDown>(A + std::int64_t{i0} * p.k + l0, p.k, 1, rows, depth, packed.a);
    pack<kAcross>(B + std::int64_t{l0} * p.n + j0, 1, p.n, columns, depth, packed.b);
    for (int j = 0; j < columns; j += kAcross)
      for (int i = 0; i < rows; i += kDown)
        multiply(Sliver<kDown, kAcross>{packed.a + i * depth, packed.b + j * depth, depth,
                                        C + std::int64_t{i} * p.n + j, p.n, std::min(kDown, rows - i),
                                        std::min(kAcross, columns - j)});
  }
}

/// Blocks of C are shared between threads. Each has a room of its own in the workspace.
inline int blocks_of(const Problem& p) { return (p.m + kRows - 1) / kRows * ((p.n + kColumns - 1) / kColumns); }

template <int kDown, int kAcross, class Multiply>
Status multiply_blocks(const Problem& p, const Tensors& t, const Multiply& multiply) {
  const int across = (p.n + kColumns - 1) / kColumns;
#pragma omp parallel for schedule(dynamic)
  for (int block = 0; block < blocks_of(p); ++block) {
    thread_local Packed<kDown, kAcross> packed;
    multiply_block(p, t, block / across * kRows, block % across * kColumns, packed, multiply);
  }
  return {};
}

}  // namespace falchion::ladder::gemm::on_cpu
