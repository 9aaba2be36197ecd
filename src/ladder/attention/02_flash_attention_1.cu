// src/ladder/attention/02_flash_attention_1.cu: FlashAttention-1 (arXiv:2205.14135, Algorithm 1), line by line. One
// block of threads has one head. The outer loop runs over key tiles, the inner one over query tiles, and O, l and m of
// all rows live in global memory.
#include "ladder/attention/plain_tile.cuh"

namespace falchion::ladder::on_gpu {
namespace {

/// The bytes of O, l and m of every row in f32.
std::size_t running_bytes(const Problem& p) {
  return sizeof(float) * static_cast<std::size_t>(p.b) * p.h * p.s_q * (p.d + 2);
}

// For sm_80 ptxas aims at four blocks per multiprocessor, that is, 64 registers, and spills to get there. For sm_90 it
// takes 80 registers of its own accord, and this is what was measured.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  #define FALCHION_LAUNCH_BOUNDS __launch_bounds__(256, 2)
#else
  #define FALCHION_LAUNCH_BOUNDS __launch_bounds__(256)
#endif

template <int kD>
__global__ void FALCHION_LAUNCH_BOUNDS attend(Problem p, const bf16* q, const bf16* k, const bf16* v, bf16* o,
                                              float* running) {
  using Tile = PlainTile<kD>;
  extern __shared__ char shared[];
  Tile& tile = *reinterpret_cast<Tile*>(shared);
  const int bh = blockIdx.x;
  const Head<const bf16> gQ = head_of(p, q, p.s_q, bh), gK = head_of(p, k, p.s_k, bh), gV = head_of(p, v, p.s_k, bh);
  float* O = running + std::int64_t{bh} * p.s_q * (kD + 2);  // (s_q, d) f32, global
  float* l = O + std::int64_t{p.s_q} * kD;                   // (s_q) f32, global
  float* m = l + p.s_q;                                      // (s_q) f32, global
  const BandMask mask = p.mask();

  for (int e = threadIdx.x; e < p.s_q * kD; e += Tile::kThreads) O[e] = 0;  // line 2
  for (int i = threadIdx.x; i < p.s_q; i += Tile::kThreads) {
    l[i] = 0;
    m[i] = -INFINITY;
  }

  for (int k0 = 0; k0 < p.s_k; k0 += Tile::kN) {  // line 5
    __syncthreads();
    Tile::load(tile.K, gK, k0, p.s_k);  // line 6
    Tile::load(tile.V, gV, k0, p.s_k);
    for (int q0 = 0; q0 < p.s_q; q0 += Tile::kM) {                          // line 7
      if (mask.visible(q0, min(q0 + Tile::kM, p.s_q)).end <= k0) continue;  // no row of this tile sees these keys
      __syncthreads();
      Tile::load(tile.Q, gQ, q0, p.s_q);  // line 8
      __syncthreads();
      float S[Tile::kRows][Tile::kKeys], PV[Tile::kRows][Tile::kColumns] = {};
      tile.scores(p, mask, q0, k0, S);  // line 9: S = Q K^T, mask.keep

      float before[Tile::kRows], now[Tile::kRows], l_new[Tile::kRows];
      for (int r = 0; r < Tile::kRows; ++r) {  // softmax.update
        const int i = min(q0 + Tile::y() + 16 * r, p.s_q - 1);
        const float m_tile = Tile::row_max(S[r]);
        const float l_tile = tile.exponentials(S[r], m_tile, r);  // line 10
        const float m_new = fmaxf(m[i], m_tile);                  // line 11
        before[r] = weight(m[i], m_new) * l[i];
        now[r] = weight(m_tile, m_new);
        l_new[r] = before[r] + now[r] * l_tile;
        __syncwarp();
        if (Tile::x() == 0 && q0 + Tile::y() + 16 * r < p.s_q) {  // line 13
          l[i] = l_new[r];
          m[i] = m_new;
        }
      }
      __syncthreads();
      tile.add_values(PV);
      // line 12: O = diag(l_new)^-1 (diag(l) e^(m - m_new) O + e^(m_tile - m_new) P V)
      for (int r = 0; r < Tile::kRows; ++r) {
        const int i = q0 + Tile::y() + 16 * r;
        for (int c = 0; c < Tile::kColumns && i < p.s_q; ++c) {
          float& value = O[std::int64_t{i} * kD + Tile::x() + 16 * c];
          value = l_new[r] == 0 ? 0 : (before[r] * value + now[r] * PV[r][c]) / l_new[r];
        }
      }
    }
  }
  __syncthreads();
  const Head<bf16> gO = head_of(p, o, p.s_q, bh);  // store
  for (int e = threadIdx.x; e < p.s_q * kD; e += Tile::kThreads) gO[e / kD][e % kD] = __float2bfloat16(O[e]);
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_head_dim(p, [&](auto d) {
    using Tile = PlainTile<d.value>;
    return launch(attend<d.value>, dim3(p.b * p.h), dim3(Tile::kThreads), sizeof(Tile), stream, p,
                  static_cast<const bf16*>(t.q), static_cast<const bf16*>(t.k), static_cast<const bf16*>(t.v),
                  static_cast<bf16*>(t.o), static_cast<float*>(t.workspace));
  });
}

}  // namespace

extern const Step flash_attention_1;
const Step flash_attention_1 = {
    "flash1",
    "FlashAttention-1: tiles, no S",
    "02_flash_attention_1.cu",
    "S is never stored: a 64 x 64 tile of it is kept in registers and shared memory, and the softmax is corrected tile "
    "by tile. Each number fetched from global memory now serves 64 multiplications, and each one fetched from shared "
    "memory serves 4. O, l and m still go through global memory. They are read and written once for each key tile: 32 "
    "tiles x 67 MB x 2 = 4.3 GB at s 2048, d 64, of which the L2 keeps a part. One block of threads has a whole head. "
    "So 128 heads occupy 128 multiprocessors, each with 8 of the 64 warps that it could hold, and these wait together "
    "at every barrier.",
    running_bytes,
    run};

}  // namespace falchion::ladder::on_gpu
