// src/ladder/backward/02_recompute.cu: FlashAttention-2's backward pass (arXiv:2307.08691, Algorithm 2) with plain
// multiplications. A block of threads has one key tile with its dK and dV, and walks over the query tiles that see it.
// P is computed again from the lse, and dQ is added to sums in global memory.
#include "ladder/attention/plain_tile.cuh"
#include "ladder/backward/around.cuh"

namespace falchion::ladder::backward::on_gpu {
namespace {

using bf16 = __nv_bfloat16;

/// The threads are arranged as in the forward steps: thread (y, x) of 16 x 16 has rows y + 16 r and columns x + 16 c of
/// each product.
template <int kD>
struct Tile {
  using Plain = ladder::on_gpu::PlainTile<kD>;
  static constexpr int kM = Plain::kM, kN = Plain::kN;
  float Q[kM][kD + 1], dO[kM][kD + 1], K[kN][kD + 1], V[kN][kD + 1];
  float pairs[kM][kN + 1];  // P, and then dS
};

/// C += the product of a (row, i) and b (i, column), over i < n. All five products are made of this loop.
template <int kD, int kRows, int kColumns, class A, class B>
__device__ void multiply(int n, float (&C)[kRows][kColumns], A a, B b) {
  using Plain = ladder::on_gpu::PlainTile<kD>;
#pragma unroll 4
  for (int i = 0; i < n; ++i) {
    float of_columns[kColumns];
    for (int c = 0; c < kColumns; ++c) of_columns[c] = b(i, Plain::x() + 16 * c);
    for (int r = 0; r < kRows; ++r) {
      const float of_row = a(Plain::y() + 16 * r, i);
      for (int c = 0; c < kColumns; ++c) C[r][c] += of_row * of_columns[c];
    }
  }
}

template <int kD>
__global__ void __launch_bounds__(256) differentiate(Problem p, const bf16* q, const bf16* k, const bf16* v,
                                                     const bf16* grad_o, Sums sums, bf16* grad_k, bf16* grad_v) {
  using Plain = ladder::on_gpu::PlainTile<kD>;
  extern __shared__ char shared[];
  auto& tile = *reinterpret_cast<Tile<kD>*>(shared);
  const int k0 = blockIdx.x * Plain::kN, bh = blockIdx.y, x = Plain::x(), y = Plain::y();
  const Head<const bf16> gQ = head_of(p, q, p.s_q, bh), gdO = head_of(p, grad_o, p.s_q, bh);
  const Head<float> gdQ = head_of(p, sums.grad_q, p.s_q, bh);
  const float *lse = sums.lse + std::int64_t{bh} * padded_rows(p), *D = sums.delta + std::int64_t{bh} * padded_rows(p);
  const float unit = p.scale * float(M_LOG2E);

  float dK[Plain::kKeys][Plain::kColumns] = {}, dV[Plain::kKeys][Plain::kColumns] = {};
  Plain::load(tile.K, head_of(p, k, p.s_k, bh), k0, p.s_k);
  Plain::load(tile.V, head_of(p, v, p.s_k, bh), k0, p.s_k);
  for (int q0 = first_row(p, k0) / Plain::kM * Plain::kM; q0 < p.s_q; q0 += Plain::kM) {
    __syncthreads();
    Plain::load(tile.Q, gQ, q0, p.s_q);
    Plain::load(tile.dO, gdO, q0, p.s_q);
    __syncthreads();
    float P[Plain::kRows][Plain::kKeys] = {}, dS[Plain::kRows][Plain::kKeys] = {};
    multiply<kD>(
        kD, P, [&](int m, int i) { return tile.Q[m][i]; }, [&](int i, int n) { return tile.K[n][i]; });  // S
    multiply<kD>(
        kD, dS, [&](int m, int i) { return tile.dO[m][i]; }, [&](int i, int n) { return tile.V[n][i]; });  // dP
    for (int r = 0; r < Plain::kRows; ++r) {
      const int i = q0 + y + 16 * r, past = past_key(p, i) - k0;
      for (int c = 0; c < Plain::kKeys; ++c) {
        P[r][c] = x + 16 * c < past ? probability(P[r][c], unit, lse[i]) : 0;  // mask.keep, P
        dS[r][c] = P[r][c] * (dS[r][c] - D[i]);                                // dS
        tile.pairs[y + 16 * r][x + 16 * c] = P[r][c];
      }
    }
    __syncthreads();
    multiply<kD>(
        Plain::kM, dV, [&](int n, int i) { return tile.pairs[i][n]; }, [&](int i, int d) { return tile.dO[i][d]; });
    __syncthreads();
    for (int r = 0; r < Plain::kRows; ++r)
      for (int c = 0; c < Plain::kKeys; ++c) tile.pairs[y + 16 * r][x + 16 * c] = dS[r][c];
    __syncthreads();
    multiply<kD>(
        Plain::kM, dK, [&](int n, int i) { return tile.pairs[i][n]; }, [&](int i, int d) { return tile.Q[i][d]; });
    float dQ[Plain::kRows][Plain::kColumns] = {};
    multiply<kD>(
        Plain::kN, dQ, [&](int m, int i) { return tile.pairs[m][i]; }, [&](int i, int d) { return tile.K[i][d]; });
    for (int r = 0; r < Plain::kRows; ++r) {
      const int i = q0 + y + 16 * r;
      for (int c = 0; c < Plain::kColumns && i < p.s_q; ++c) atomicAdd(&gdQ[i][x + 16 * c], dQ[r][c]);
    }
  }

  const Head<bf16> gdK = head_of(p, grad_k, p.s_k, bh), gdV = head_of(p, grad_v, p.s_k, bh);
  for (int r = 0; r < Plain::kKeys; ++r) {  // store
    const int j = k0 + y + 16 * r;
    for (int c = 0; c < Plain::kColumns && j < p.s_k; ++c) {
      gdK[j][x + 16 * c] = __float2bfloat16(p.scale * dK[r][c]);
      gdV[j][x + 16 * c] = __float2bfloat16(dV[r][c]);
    }
  }
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_head_dim(p, [&](auto d) {
    return run_around(p, t, stream, [&](const Sums& sums) {
      return launch(differentiate<d.value>, dim3(divide_up(p.s_k, Tile<d.value>::kN), p.b * p.h), dim3(256),
                    sizeof(Tile<d.value>), stream, p, static_cast<const bf16*>(t.q), static_cast<const bf16*>(t.k),
                    static_cast<const bf16*>(t.v), static_cast<const bf16*>(t.grad_o), sums,
                    static_cast<bf16*>(t.grad_k), static_cast<bf16*>(t.grad_v));
    });
  });
}

}  // namespace

extern const Step recompute;
const Step recompute = {
    "recompute",
    "FlashAttention-2: tiles, P computed again",
    "02_recompute.cu",
    "P and dS are never stored. A tile of P is computed again from the scores and the lse, which costs one product "
    "more, and lives in shared memory. dS needs the sum of P dP over a whole row, but this sum is dO O, and a small "
    "kernel computes it before: D. A block of threads keeps one key tile, with its dK and dV in registers, and walks "
    "over the query tiles. So of the three gradients only dQ gets a part from every block: it is added to sums in f32 "
    "by atomics, and a small kernel rounds them. Each number fetched from global memory now serves as many "
    "multiplications as a tile has lines. What remains is arithmetic: at the data sheet's 67 TFLOP/s of plain f32 the "
    "five products alone would take 5 ms at d 64.",
    sums_bytes,
    run};

}  // namespace falchion::ladder::backward::on_gpu
