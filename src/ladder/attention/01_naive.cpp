// src/ladder/attention/01_naive.cpp: attention as it is written on a blackboard: S = Q K^T, P = softmax(S), O = P V.
// Each is finished before the next begins, with S in memory between them. It is f32 on the CPU.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ladder/attention/step.hpp"

namespace falchion::ladder::on_cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int x = 0; x < n; ++x) sum += a[x] * b[x];
  return sum;
}

/// Q (s_q, d), K (s_k, d) -> S (s_q, s_k)
void scores(const Problem& p, Head<const float> Q, Head<const float> K, float* S) {
  const BandMask mask = p.mask();
  for (int i = 0; i < p.s_q; ++i)
    for (int j = 0; j < p.s_k; ++j)
      S[std::int64_t{i} * p.s_k + j] = mask.keep(i, j) ? p.scale * dot(Q[i], K[j], p.d) : -kInfinity;
}

/// S -> P, in place
void softmax(const Problem& p, float* S) {
  for (int i = 0; i < p.s_q; ++i) {
    float* row = S + std::int64_t{i} * p.s_k;
    float m = -kInfinity, l = 0;
    for (int j = 0; j < p.s_k; ++j) m = std::max(m, row[j]);
    for (int j = 0; j < p.s_k; ++j) l += row[j] = row[j] == -kInfinity ? 0 : std::exp(row[j] - m);
    for (int j = 0; j < p.s_k; ++j) row[j] = l == 0 ? 0 : row[j] / l;
  }
}

/// P (s_q, s_k), V (s_k, d) -> O (s_q, d)
void values(const Problem& p, const float* P, Head<const float> V, Head<float> O) {
  for (int i = 0; i < p.s_q; ++i) {
    std::fill_n(O[i], p.d, 0.f);
    for (int j = 0; j < p.s_k; ++j)
      for (int x = 0; x < p.d; ++x) O[i][x] += P[std::int64_t{i} * p.s_k + j] * V[j][x];
  }
}

Status run(const Problem& p, const Tensors& t, Stream) {
#pragma omp parallel for
  for (int bh = 0; bh < p.b * p.h; ++bh) {
    float* S = static_cast<float*>(t.workspace) + std::int64_t{bh} * p.s_q * p.s_k;
    scores(p, head_of(p, static_cast<const float*>(t.q), p.s_q, bh),
           head_of(p, static_cast<const float*>(t.k), p.s_k, bh), S);
    softmax(p, S);
    values(p, S, head_of(p, static_cast<const float*>(t.v), p.s_k, bh),
           head_of(p, static_cast<float*>(t.o), p.s_q, bh));
  }
  return {};
}

}  // namespace

extern const Step naive;
const Step naive = {
    "naive",
    "Three loops, S in memory",
    "01_naive.cpp",
    "This step is the definition: it computes every score, then the softmax of every row, and then the weighted sum of "
    "V. S has s_q x s_k numbers for each head. It is written once, walked three times by the softmax, and read once "
    "more. Each score is one sum that adds element after element, so each addition waits four cycles for the one "
    "before. The compiler may not reorder the sum, so the other lanes of the vector unit stay empty.",
    score_bytes,
    run};

}  // namespace falchion::ladder::on_cpu
