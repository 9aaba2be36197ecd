// src/ladder/attention/03_flash_attention_2.cpp: FlashAttention-2 (arXiv:2307.08691, Algorithm 1) on the CPU. The two
// loops change places: a worker keeps a tile of query rows with their O, l and m, and walks over the keys.
#include "ladder/attention/tile.hpp"

namespace falchion::ladder::on_cpu {
namespace {

template <int kD>
void attend(const Problem& p, const Tensors& t, int bh, int q0) {
  const Head<const float> Q = head_of(p, static_cast<const float*>(t.q), p.s_q, bh);
  const Head<const float> K = head_of(p, static_cast<const float*>(t.k), p.s_k, bh);
  const Head<const float> V = head_of(p, static_cast<const float*>(t.v), p.s_k, bh);
  const Head<float> Output = head_of(p, static_cast<float*>(t.o), p.s_q, bh);
  const BandMask mask = p.mask();
  const int rows = std::min(kM, p.s_q - q0);
  const int end = static_cast<int>(mask.visible(q0, q0 + rows).end);
  KeyTile<kD> tile;
  float O[kM][kD] = {}, l[kM] = {}, m[kM], S[kN];
  std::fill_n(m, kM, -kInfinity);

  for (int k0 = 0; k0 < end; k0 += kN) {
    tile.load(p, K, V, k0);
    for (int r = 0; r < rows; ++r) {
      scores(p, Q[q0 + r], tile, mask, q0 + r, k0, S);  // S = Q K^T, mask.keep

      const float m_new = std::max(m[r], *std::max_element(S, S + kN));  // softmax.update
      const float shrink = weight(m[r], m_new);
      l[r] = shrink * l[r] + exponentials(S, m_new);
      m[r] = m_new;
      if (shrink != 1) {
        for (int x = 0; x < kD; ++x) O[r][x] *= shrink;  // scale_rows
      }
      add_values(S, tile, O[r]);  // O += P V
    }
  }
  for (int r = 0; r < rows; ++r)  // finish, store
    for (int x = 0; x < kD; ++x) Output[q0 + r][x] = l[r] == 0 ? 0 : O[r][x] / l[r];
}

Status run(const Problem& p, const Tensors& t, Stream) {
  const int tiles = (p.s_q + kM - 1) / kM;
  return with_head_dim(p, [&](auto d) {
#pragma omp parallel for schedule(dynamic)
    for (int item = 0; item < p.b * p.h * tiles; ++item) attend<d.value>(p, t, item / tiles, item % tiles * kM);
  });
}

}  // namespace

extern const Step flash_attention_2;
const Step flash_attention_2 = {
    "flash2",
    "FlashAttention-2: queries outside",
    "03_flash_attention_2.cpp",
    "The two loops change places. A worker keeps 256 query rows with their O, l and m until they are done. O stays "
    "unnormalised until the end, and a row whose maximum did not rise is not rescaled at all. FlashAttention-1 "
    "multiplied, added and divided all of O once for each key tile. That saves a few percent, which is about what it "
    "costs to copy each key tile once for every 256 rows. The gain shows where there are more cores than heads: every "
    "tile of rows is a piece of work of its own, so one head can occupy all cores.",
    no_workspace,
    run};

}  // namespace falchion::ladder::on_cpu
