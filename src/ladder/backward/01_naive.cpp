// src/ladder/backward/01_naive.cpp: the gradients of attention as they are written on a blackboard, one matrix after
// the other, with P and dS in memory between them. It is f32 on the CPU.
#include <algorithm>
#include <cmath>

#include "ladder/backward/step.hpp"

namespace falchion::ladder::backward::on_cpu {
namespace {

float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int x = 0; x < n; ++x) sum += a[x] * b[x];
  return sum;
}

/// One head: its tensors, and its P and dS (s_q, s_k).
struct OneHead {
  const Problem& p;
  Head<const float> Q, K, V, dO;
  const float* lse;
  Head<float> dQ, dK, dV;
  float *P, *dS;

  OneHead(const Problem& p, const Tensors& t, int bh)
      : p(p),
        Q(head_of(p, static_cast<const float*>(t.q), p.s_q, bh)),
        K(head_of(p, static_cast<const float*>(t.k), p.s_k, bh)),
        V(head_of(p, static_cast<const float*>(t.v), p.s_k, bh)),
        dO(head_of(p, static_cast<const float*>(t.grad_o), p.s_q, bh)),
        lse(t.lse + std::int64_t{bh} * p.s_q),
        dQ(head_of(p, static_cast<float*>(t.grad_q), p.s_q, bh)),
        dK(head_of(p, static_cast<float*>(t.grad_k), p.s_k, bh)),
        dV(head_of(p, static_cast<float*>(t.grad_v), p.s_k, bh)),
        P(static_cast<float*>(t.workspace) + std::int64_t{2} * bh * p.s_q * p.s_k),
        dS(P + std::int64_t{p.s_q} * p.s_k) {}

  /// P = exp(scale Q K^T - lse), and dP = dO V^T in the place of dS.
  void pairs() const {
    const BandMask mask = p.mask();
    for (int i = 0; i < p.s_q; ++i) {
      for (int j = 0; j < p.s_k; ++j) {
        const std::int64_t at = std::int64_t{i} * p.s_k + j;
        P[at] = mask.keep(i, j) ? std::exp(p.scale * dot(Q[i], K[j], p.d) - lse[i]) : 0;
        dS[at] = dot(dO[i], V[j], p.d);
      }
    }
  }
  /// dS = P (dP - D), in place, with D as the derivative of the softmax has it: the sum of P dP over the row.
  void softmax() const {
    for (int i = 0; i < p.s_q; ++i) {
      const float* row = P + std::int64_t{i} * p.s_k;
      float* to = dS + std::int64_t{i} * p.s_k;
      const float D = dot(row, to, p.s_k);
      for (int j = 0; j < p.s_k; ++j) to[j] = row[j] * (to[j] - D);
    }
  }
  /// dV = P^T dO, dK = scale dS^T Q, dQ = scale dS K
  void gradients() const {
    for (int j = 0; j < p.s_k; ++j) {
      std::fill_n(dV[j], p.d, 0.f);
      std::fill_n(dK[j], p.d, 0.f);
    }
    for (int i = 0; i < p.s_q; ++i) {
      std::fill_n(dQ[i], p.d, 0.f);
      for (int j = 0; j < p.s_k; ++j) {
        const std::int64_t at = std::int64_t{i} * p.s_k + j;
        for (int x = 0; x < p.d; ++x) {
          dV[j][x] += P[at] * dO[i][x];
          dK[j][x] += p.scale * dS[at] * Q[i][x];
          dQ[i][x] += p.scale * dS[at] * K[j][x];
        }
      }
    }
  }
};

Status run(const Problem& p, const Tensors& t, Stream) {
#pragma omp parallel for
  for (int bh = 0; bh < p.b * p.h; ++bh) {
    const OneHead head(p, t, bh);
    head.pairs();
    head.softmax();
    head.gradients();
  }
  return {};
}

}  // namespace

extern const Step naive;
const Step naive = {
    "naive",
    "Three passes, P and dS in memory",
    "01_naive.cpp",
    "This step is the definition. It computes P and dP for every pair of a query and a key, then dS from them row by "
    "row, and then the three gradients as sums over all pairs. P and dS have s_q x s_k numbers each for each head. "
    "They are written, walked by the softmax, and read once more. P needs no maximum here, since the forward pass has "
    "left the lse of each row, and exp(score - lse) is the probability itself. Each score and each dP is one sum that "
    "adds element after element, so each addition waits four cycles for the one before.",
    pair_bytes,
    run};

}  // namespace falchion::ladder::backward::on_cpu
