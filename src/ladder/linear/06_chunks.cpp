// src/ladder/linear/06_chunks.cpp: takes 16 tokens at a time, as matrices: P = tril(Q K^T), O = P V + Q S, S += K^T V.
// It is f32 on the CPU.
#include <algorithm>

#include "ladder/linear/sizes.hpp"

namespace falchion::ladder::linear::on_cpu {
namespace {

constexpr int kC = 16;

/// Computes C += A B. Each number of C is loaded and stored once for four rows of B.
template <int rows, int inner, int columns>
void add_product(const float (&A)[rows][inner], const float (&B)[inner][columns], float (&C)[rows][columns]) {
  constexpr int kRows = 4;
  for (int i = 0; i < rows; ++i) {
    for (int x = 0; x < inner; x += kRows) {
      for (int j = 0; j < columns; ++j) {
        float sum = C[i][j];
        for (int r = 0; r < kRows; ++r) sum += A[i][x + r] * B[x + r][j];
        C[i][j] = sum;
      }
    }
  }
}

/// A chunk and the state. d_qk and d_v are filled up with zeros to the same d.
template <int d>
struct Chunk {
  float Q[kC][d], Kt[d][kC], V[kC][d], P[kC][kC], O[kC][d], S[d][d];

  /// Loads tokens [row0, row0 + rows), and 0 after them.
  void load(const Problem& p, Head<const float> q, Head<const float> k, Head<const float> v, int row0, int rows) {
    for (int i = 0; i < kC; ++i) {
      const bool there = i < rows;
      for (int e = 0; e < p.d_qk; ++e) {
        Q[i][e] = there ? q[row0 + i][e] : 0;
        Kt[e][i] = there ? k[row0 + i][e] : 0;
      }
      for (int m = 0; m < p.d_v; ++m) V[i][m] = there ? v[row0 + i][m] : 0;
    }
  }

  void attend() {
    std::fill_n(&P[0][0], kC * kC, 0.f);
    std::fill_n(&O[0][0], kC * d, 0.f);
    add_product(Q, Kt, P);
    for (int i = 0; i < kC; ++i) std::fill(P[i] + i + 1, P[i] + kC, 0.f);  // tril
    add_product(P, V, O);
    add_product(Q, S, O);
    add_product(Kt, V, S);
  }
};

template <int d>
void attend(const Problem& p, const Tensors& t, int bh) {
  const Head<const float> Q = head_of(p, static_cast<const float*>(t.q), p.d_qk, bh);
  const Head<const float> K = head_of(p, static_cast<const float*>(t.k), p.d_qk, bh);
  const Head<const float> V = head_of(p, static_cast<const float*>(t.v), p.d_v, bh);
  const Head<float> O = head_of(p, static_cast<float*>(t.o), p.d_v, bh);
  Chunk<d> chunk = {};  // 33 KB at d 64
  for (int row0 = 0; row0 < p.s; row0 += kC) {
    const int rows = std::min(kC, p.s - row0);
    chunk.load(p, Q, K, V, row0, rows);
    chunk.attend();
    for (int i = 0; i < rows; ++i) std::copy_n(chunk.O[i], p.d_v, O[row0 + i]);
  }
}

Status run(const Problem& p, const Tensors& t, Stream) {
  if (Status status = p.check(); !status) return status;
  return with_size<64, 128>(std::max(p.d_qk, p.d_v), [&](auto d) {
#pragma omp parallel for
    for (int bh = 0; bh < p.b * p.h; ++bh) attend<d.value>(p, t, bh);
    return Status{};
  });
}

}  // namespace

extern const Step chunks;
const Step chunks = {"chunks",
                     "Chunks of 16 tokens",
                     "06_chunks.cpp",
                     "This is the algorithm of the tensor-core step. In a product of matrices the loops can be "
                     "rearranged: a number of the result is loaded and stored once for four multiply-adds, where the "
                     "recurrence loads and stores one number of S and one of o for two. With vectors of four numbers "
                     "that hardly pays at d 64, because the triangle costs arithmetic, and more of it the longer the "
                     "chunk is. So a chunk has 16 tokens here and not 64. At d 128, where S outgrows the first-level "
                     "cache, it does pay. The step prepares for wide vectors and AMX tiles, which want matrices.",
                     DType::f32,
                     no_workspace,
                     run};

}  // namespace falchion::ladder::linear::on_cpu
