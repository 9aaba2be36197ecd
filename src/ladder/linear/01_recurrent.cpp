// src/ladder/linear/01_recurrent.cpp: the recurrence as it is defined: S += k v^T, o = q^T S, token by token. It is f32
// on the CPU.
#include <algorithm>
#include <array>

#include "ladder/linear/step.hpp"

namespace falchion::ladder::linear::on_cpu {
namespace {

void attend(const Problem& p, const Tensors& t, int bh) {
  const Head<const float> Q = head_of(p, static_cast<const float*>(t.q), p.d_qk, bh);
  const Head<const float> K = head_of(p, static_cast<const float*>(t.k), p.d_qk, bh);
  const Head<const float> V = head_of(p, static_cast<const float*>(t.v), p.d_v, bh);
  const Head<float> O = head_of(p, static_cast<float*>(t.o), p.d_v, bh);
  float S[128][128] = {};  // (d_qk, d_v)
  std::array<float, 128> o;
  for (int j = 0; j < p.s; ++j) {
    o.fill(0);
    for (int e = 0; e < p.d_qk; ++e) {
      for (int m = 0; m < p.d_v; ++m) {
        S[e][m] += K[j][e] * V[j][m];
        o[m] += Q[j][e] * S[e][m];
      }
    }
    std::copy_n(o.begin(), p.d_v, O[j]);
  }
}

Status run(const Problem& p, const Tensors& t, Stream) {
  if (Status status = p.check(); !status) return status;
#pragma omp parallel for
  for (int bh = 0; bh < p.b * p.h; ++bh) attend(p, t, bh);
  return {};
}

}  // namespace

extern const Step recurrent;
const Step recurrent = {
    "recurrent",
    "Token by token",
    "01_recurrent.cpp",
    "This step is the definition: S += k v^T and o = q^T S, once for each token. Nothing is computed twice, and each "
    "tensor is read or written once. But for each token all of S passes through the core, with a load and a store for "
    "every two multiply-adds. At d 64 S has 16 KB, which the first-level cache holds. At d 128 it has 64 KB, which "
    "that cache does not hold.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::linear::on_cpu
