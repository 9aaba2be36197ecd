// src/ladder/attention/02_flash_attention_1.cpp: FlashAttention-1 (arXiv:2205.14135, Algorithm 1) on the CPU. The outer
// loop runs over key tiles, the inner one over query rows. O, l and m of all rows live in memory and are corrected once
// per key tile.
#include "ladder/attention/tile.hpp"

namespace falchion::ladder::on_cpu {
namespace {

/// The bytes of l and m of every row.
std::size_t statistics_bytes(const Problem& p) {
  return 2 * sizeof(float) * static_cast<std::size_t>(p.b) * p.h * p.s_q;
}

template <int kD>
void attend(const Problem& p, const Tensors& t, int bh) {
  const Head<const float> Q = head_of(p, static_cast<const float*>(t.q), p.s_q, bh);
  const Head<const float> K = head_of(p, static_cast<const float*>(t.k), p.s_k, bh);
  const Head<const float> V = head_of(p, static_cast<const float*>(t.v), p.s_k, bh);
  const Head<float> O = head_of(p, static_cast<float*>(t.o), p.s_q, bh);
  float* l = static_cast<float*>(t.workspace) + std::int64_t{2} * bh * p.s_q;
  float* m = l + p.s_q;
  const BandMask mask = p.mask();
  KeyTile<kD> tile;
  float S[kN], PV[kD];

  for (int i = 0; i < p.s_q; ++i) {  // line 2
    std::fill_n(O[i], kD, 0.f);
    l[i] = 0;
    m[i] = -kInfinity;
  }
  for (int k0 = 0; k0 < p.s_k; k0 += kN) {  // line 5
    tile.load(p, K, V, k0);                 // line 6
    for (int i = 0; i < p.s_q; ++i) {       // line 7
      if (mask.keys(i).end <= k0) continue;
      scores(p, Q[i], tile, mask, i, k0, S);  // line 9: S = Q K^T, mask.keep

      const float m_tile = *std::max_element(S, S + kN);  // line 10: softmax.update, of this tile alone
      const float l_tile = exponentials(S, m_tile);
      const float m_new = std::max(m[i], m_tile);  // line 11: ... and of all tiles so far
      const float before = weight(m[i], m_new) * l[i], now = weight(m_tile, m_new);
      const float l_new = before + now * l_tile;

      std::fill_n(PV, kD, 0.f);
      add_values(S, tile, PV);
      for (int x = 0; x < kD; ++x)  // line 12: O = diag(l_new)^-1 (diag(l) e^(m - m_new) O + e^(m_tile - m_new) P V)
        O[i][x] = l_new == 0 ? 0 : (before * O[i][x] + now * PV[x]) / l_new;
      l[i] = l_new;  // line 13
      m[i] = m_new;
    }
  }
}

Status run(const Problem& p, const Tensors& t, Stream) {
  return with_head_dim(p, [&](auto d) {
#pragma omp parallel for
    for (int bh = 0; bh < p.b * p.h; ++bh) attend<d.value>(p, t, bh);
  });
}

}  // namespace

extern const Step flash_attention_1;
const Step flash_attention_1 = {
    "flash1",
    "FlashAttention-1: tiles, no S",
    "02_flash_attention_1.cpp",
    "S is never stored: the 64 scores of one row take 256 bytes, and the softmax is corrected tile by tile. A key tile "
    "is small enough to be rearranged. It is copied once, with K transposed, and then serves every row from the caches "
    "next to the core. Now the inner loop of Q K^T runs over keys. It has 64 independent sums instead of one, and "
    "fills the vector unit. That is the gain here, and not the memory saved, because a core computes so slowly that "
    "memory keeps up with it even in the naive step.",
    statistics_bytes,
    run};

}  // namespace falchion::ladder::on_cpu
