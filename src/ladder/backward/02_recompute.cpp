// src/ladder/backward/02_recompute.cpp: FlashAttention-2's backward pass (arXiv:2307.08691, Algorithm 2) on the CPU.
// The outer loop runs over key tiles, which keep dK and dV, and the inner one over query rows. P is computed again from
// the lse, and D is known before.
#include <algorithm>
#include <cmath>

#include "ladder/attention/tile.hpp"
#include "ladder/backward/step.hpp"

namespace falchion::ladder::backward::on_cpu {
namespace {

inline constexpr int kKeys = 64;

/// The bytes of D of every row.
std::size_t statistics_bytes(const Problem& p) { return sizeof(float) * static_cast<std::size_t>(p.b) * p.h * p.s_q; }

/// A tile of keys with its gradients. K and V are transposed for the two products whose sums run over the head dim, so
/// that the inner loop fills the lanes of a vector with keys.
template <int kD>
struct KeyTile {
  float Kt[kD][kKeys], Vt[kD][kKeys], K[kKeys][kD], dK[kKeys][kD], dV[kKeys][kD];  // 80 KB at d 64

  /// Loads the keys [k0, k0 + kKeys), and 0 past s_k.
  void load(const Problem& p, Head<const float> keys, Head<const float> values, int k0) {
    for (int n = 0; n < kKeys; ++n) {
      const bool there = k0 + n < p.s_k;
      for (int x = 0; x < kD; ++x) {
        K[n][x] = Kt[x][n] = there ? keys[k0 + n][x] : 0;
        Vt[x][n] = there ? values[k0 + n][x] : 0;
        dK[n][x] = dV[n][x] = 0;
      }
    }
  }
};

/// Computes out = row X, where X is transposed: a score of the row with each key.
template <int kD>
void multiply(const float* row, const float (&Xt)[kD][kKeys], float* out) {
  std::fill_n(out, kKeys, 0.f);
  for (int x = 0; x < kD; ++x)
    for (int n = 0; n < kKeys; ++n) out[n] += row[x] * Xt[x][n];
}

template <int kD>
void differentiate(const Problem& p, const Tensors& t, int bh) {
  const Head<const float> Q = head_of(p, static_cast<const float*>(t.q), p.s_q, bh);
  const Head<const float> K = head_of(p, static_cast<const float*>(t.k), p.s_k, bh);
  const Head<const float> V = head_of(p, static_cast<const float*>(t.v), p.s_k, bh);
  const Head<const float> O = head_of(p, static_cast<const float*>(t.o), p.s_q, bh);
  const Head<const float> dO = head_of(p, static_cast<const float*>(t.grad_o), p.s_q, bh);
  const Head<float> dQ = head_of(p, static_cast<float*>(t.grad_q), p.s_q, bh);
  const Head<float> dK = head_of(p, static_cast<float*>(t.grad_k), p.s_k, bh);
  const Head<float> dV = head_of(p, static_cast<float*>(t.grad_v), p.s_k, bh);
  const float* lse = t.lse + std::int64_t{bh} * p.s_q;
  float* D = static_cast<float*>(t.workspace) + std::int64_t{bh} * p.s_q;
  const BandMask mask = p.mask();
  KeyTile<kD> tile;
  float P[kKeys], dS[kKeys];

  for (int i = 0; i < p.s_q; ++i) {  // line 4: D
    D[i] = 0;
    for (int x = 0; x < kD; ++x) D[i] += dO[i][x] * O[i][x];
    std::fill_n(dQ[i], kD, 0.f);
  }
  for (int k0 = 0; k0 < p.s_k; k0 += kKeys) {         // line 5
    tile.load(p, K, V, k0);                           // lines 6 and 7
    for (int i = first_row(p, k0); i < p.s_q; ++i) {  // line 8
      float of_q[kD], of_dO[kD], of_dQ[kD] = {};      // the row, where nothing else can be
      std::copy_n(Q[i], kD, of_q);
      std::copy_n(dO[i], kD, of_dO);
      multiply(of_q, tile.Kt, P);    // line 10: S = Q K^T
      multiply(of_dO, tile.Vt, dS);  // line 13: dP = dO V^T
      for (int n = 0; n < kKeys; ++n) {
        P[n] = mask.keep(i, k0 + n) ? std::exp(p.scale * P[n] - lse[i]) : 0;  // line 11: mask.keep, P
        dS[n] = P[n] * (dS[n] - D[i]);                                        // line 14: dS
      }
      for (int n = 0; n < kKeys; ++n) {
        for (int x = 0; x < kD; ++x) tile.dV[n][x] += P[n] * of_dO[x];  // line 12: dV += P^T dO
        for (int x = 0; x < kD; ++x) tile.dK[n][x] += dS[n] * of_q[x];  // line 16: dK += dS^T Q
        for (int x = 0; x < kD; ++x) of_dQ[x] += dS[n] * tile.K[n][x];  // line 15: dQ += dS K
      }
      for (int x = 0; x < kD; ++x) dQ[i][x] += p.scale * of_dQ[x];
    }
    for (int n = 0; n < kKeys && k0 + n < p.s_k; ++n) {  // line 18: store
      for (int x = 0; x < kD; ++x) {
        dK[k0 + n][x] = p.scale * tile.dK[n][x];
        dV[k0 + n][x] = tile.dV[n][x];
      }
    }
  }
}

Status run(const Problem& p, const Tensors& t, Stream) {
  return ladder::on_cpu::with_head_dim(p, [&](auto d) {
#pragma omp parallel for
    for (int bh = 0; bh < p.b * p.h; ++bh) differentiate<d.value>(p, t, bh);
  });
}

}  // namespace

extern const Step recompute;
const Step recompute = {
    "recompute",
    "FlashAttention-2: tiles, P computed again",
    "02_recompute.cpp",
    "P and dS are never stored. A row needs P of 64 keys at a time, and computes it again from its scores and its lse. "
    "dS needs the sum of P dP over the whole row, which would take all keys first. But this sum is dO O, one product "
    "of two rows that are known before the walk begins: D. A key tile keeps dK and dV in the caches next to the core "
    "while all rows pass, and dQ of a row is added to once for each key tile. With K and V transposed, the inner loops "
    "of S and dP run over keys, and the vector unit has 64 independent sums where the naive step had one.",
    statistics_bytes,
    run};

}  // namespace falchion::ladder::backward::on_cpu
