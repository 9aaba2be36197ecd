// src/ladder/attention/03_flash_attention_2.cu: FlashAttention-2 (arXiv:2307.08691, Algorithm 1) with plain
// multiplications. The two loops change places: a block of threads has one query tile and keeps its O, l and m in
// registers.
#include "ladder/attention/plain_tile.cuh"

namespace falchion::ladder::on_gpu {
namespace {

template <int kD>
__global__ void __launch_bounds__(256) attend(Problem p, const bf16* q, const bf16* k, const bf16* v, bf16* o) {
  using Tile = PlainTile<kD>;
  extern __shared__ char shared[];
  Tile& tile = *reinterpret_cast<Tile*>(shared);
  const int q0 = blockIdx.x * Tile::kM, bh = blockIdx.y;
  const Head<const bf16> gQ = head_of(p, q, p.s_q, bh), gK = head_of(p, k, p.s_k, bh), gV = head_of(p, v, p.s_k, bh);
  const BandMask mask = p.mask();
  const int end = static_cast<int>(mask.visible(q0, min(q0 + Tile::kM, p.s_q)).end);

  float O[Tile::kRows][Tile::kColumns] = {}, l[Tile::kRows] = {}, m[Tile::kRows];
  for (float& x : m) x = -INFINITY;
  Tile::load(tile.Q, gQ, q0, p.s_q);
  for (int k0 = 0; k0 < end; k0 += Tile::kN) {
    __syncthreads();
    Tile::load(tile.K, gK, k0, p.s_k);
    Tile::load(tile.V, gV, k0, p.s_k);
    __syncthreads();
    float S[Tile::kRows][Tile::kKeys];
    tile.scores(p, mask, q0, k0, S);  // S = Q K^T, mask.keep

    for (int r = 0; r < Tile::kRows; ++r) {  // softmax.update
      const float m_new = fmaxf(m[r], Tile::row_max(S[r]));
      const float shrink = weight(m[r], m_new);
      l[r] = shrink * l[r] + tile.exponentials(S[r], m_new, r);
      m[r] = m_new;
      for (float& x : O[r]) x *= shrink;  // scale_rows
    }
    __syncwarp();  // a warp reads only the rows of P that it wrote
    tile.add_values(O);
  }

  const Head<bf16> gO = head_of(p, o, p.s_q, bh);
  for (int r = 0; r < Tile::kRows; ++r) {
    const int i = q0 + Tile::y() + 16 * r;
    for (int c = 0; c < Tile::kColumns && i < p.s_q; ++c)  // finish, store
      gO[i][Tile::x() + 16 * c] = __float2bfloat16(l[r] == 0 ? 0 : O[r][c] / l[r]);
  }
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_head_dim(p, [&](auto d) {
    using Tile = PlainTile<d.value>;
    return launch(attend<d.value>, dim3(divide_up(p.s_q, Tile::kM), p.b * p.h), dim3(Tile::kThreads), sizeof(Tile),
                  stream, p, static_cast<const bf16*>(t.q), static_cast<const bf16*>(t.k),
                  static_cast<const bf16*>(t.v), static_cast<bf16*>(t.o));
  });
}

}  // namespace

extern const Step flash_attention_2;
const Step flash_attention_2 = {
    "flash2",
    "FlashAttention-2: queries outside",
    "03_flash_attention_2.cu",
    "The two loops change places. A block of threads keeps one query tile with its O, l and m in registers until it is "
    "done. So O stays unnormalised and goes to memory once, instead of once for each key tile. There are also s_q / 64 "
    "times as many blocks, 4096 instead of 128, and three of them share a multiprocessor: while one waits for a load "
    "or a barrier, the others compute. What remains is arithmetic. At the data sheet's 67 TFLOP/s of plain f32 these "
    "products alone would take 2 ms.",
    no_workspace,
    run};

}  // namespace falchion::ladder::on_gpu
