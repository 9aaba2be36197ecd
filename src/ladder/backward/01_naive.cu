// src/ladder/backward/01_naive.cu: the gradients of attention as they are written on a blackboard, in three kernels. P
// and dP for every pair; dS = P (dP - D); and dQ, dK, dV. Between them P and dS (b, h, s_q, s_k) lie in global memory
// in f32.
#include <cuda_bf16.h>

#include "ladder/attention/launch.cuh"
#include "ladder/backward/step.hpp"

namespace falchion::ladder::backward::on_gpu {
namespace {

using bf16 = __nv_bfloat16;

/// One thread has one pair. P = exp(scale Q K^T - lse), and dP = dO V^T in the place of dS.
__global__ void pairs(Problem p, const bf16* q, const bf16* k, const bf16* v, const bf16* grad_o, const float* lse,
                      float* probabilities, float* grad_s) {
  // Squares are numbered along x, since a grid has no more than 65535 blocks along y: here those of 16 x 16 pairs.
  const unsigned across = (p.s_k + 15) / 16;
  const int j = blockIdx.x % across * 16 + threadIdx.x;
  const int i = blockIdx.x / across * 16 + threadIdx.y;
  const int bh = blockIdx.z;
  if (i >= p.s_q || j >= p.s_k) return;
  const bf16 *Q = head_of(p, q, p.s_q, bh)[i], *K = head_of(p, k, p.s_k, bh)[j];
  const bf16 *dO = head_of(p, grad_o, p.s_q, bh)[i], *V = head_of(p, v, p.s_k, bh)[j];
  float S = 0, dP = 0;
  for (int x = 0; x < p.d; ++x) {
    S += __bfloat162float(Q[x]) * __bfloat162float(K[x]);
    dP += __bfloat162float(dO[x]) * __bfloat162float(V[x]);
  }
  const std::int64_t row = std::int64_t{bh} * p.s_q + i, at = row * p.s_k + j;
  probabilities[at] = p.mask().keep(i, j) ? expf(p.scale * S - lse[row]) : 0;
  grad_s[at] = dP;
}

/// One warp has one row. dS = P (dP - D), in place, with D as the derivative of the softmax has it: the sum of P dP
/// over the row.
__global__ void softmax(Problem p, const float* probabilities, float* grad_s) {
  const int i = blockIdx.x * blockDim.y + threadIdx.y;
  const int bh = blockIdx.y;
  const int lane = threadIdx.x;
  if (i >= p.s_q) return;
  const std::int64_t row = (std::int64_t{bh} * p.s_q + i) * p.s_k;
  float D = 0;
  for (int j = lane; j < p.s_k; j += 32) D += probabilities[row + j] * grad_s[row + j];
  for (int other = 16; other > 0; other /= 2) D += __shfl_xor_sync(~0u, D, other);
  for (int j = lane; j < p.s_k; j += 32) grad_s[row + j] = probabilities[row + j] * (grad_s[row + j] - D);
}

/// One thread has one column of a line, which is row number `line` of dQ and key number `line` of dK and dV.
/// dQ = scale dS K, dK = scale dS^T Q, dV = P^T dO
__global__ void gradients(Problem p, const bf16* q, const bf16* k, const bf16* grad_o, const float* probabilities,
                          const float* grad_s, bf16* grad_q, bf16* grad_k, bf16* grad_v) {
  const unsigned across = p.d / 16;
  const int x = blockIdx.x % across * 16 + threadIdx.x;
  const int line = blockIdx.x / across * 16 + threadIdx.y;
  const int bh = blockIdx.z;
  const float* P = probabilities + std::int64_t{bh} * p.s_q * p.s_k;
  const float* dS = grad_s + std::int64_t{bh} * p.s_q * p.s_k;
  const Head<const bf16> Q = head_of(p, q, p.s_q, bh), dO = head_of(p, grad_o, p.s_q, bh);
  const Head<const bf16> K = head_of(p, k, p.s_k, bh);
  if (line < p.s_q) {
    float dQ = 0;
    for (int j = 0; j < p.s_k; ++j) dQ += dS[std::int64_t{line} * p.s_k + j] * __bfloat162float(K[j][x]);
    head_of(p, grad_q, p.s_q, bh)[line][x] = __float2bfloat16(p.scale * dQ);
  }
  if (line < p.s_k) {
    float dK = 0, dV = 0;
    for (int i = 0; i < p.s_q; ++i) {
      const std::int64_t at = std::int64_t{i} * p.s_k + line;
      dK += dS[at] * __bfloat162float(Q[i][x]);
      dV += P[at] * __bfloat162float(dO[i][x]);
    }
    head_of(p, grad_k, p.s_k, bh)[line][x] = __float2bfloat16(p.scale * dK);
    head_of(p, grad_v, p.s_k, bh)[line][x] = __float2bfloat16(dV);
  }
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  const auto *q = static_cast<const bf16*>(t.q), *k = static_cast<const bf16*>(t.k), *v = static_cast<const bf16*>(t.v);
  const auto* grad_o = static_cast<const bf16*>(t.grad_o);
  auto* P = static_cast<float*>(t.workspace);
  float* dS = P + score_bytes(p) / sizeof(float);
  const unsigned heads = p.b * p.h;
  const dim3 square(16, 16), grid_pairs(divide_up(p.s_k, 16) * divide_up(p.s_q, 16), 1, heads);
  if (Status status = launch(pairs, grid_pairs, square, 0, stream, p, q, k, v, grad_o, t.lse, P, dS); !status)
    return status;
  if (Status status = launch(softmax, dim3(divide_up(p.s_q, 8), heads), dim3(32, 8), 0, stream, p, P, dS); !status)
    return status;
  const dim3 grid_lines(p.d / 16 * divide_up(p.s_q > p.s_k ? p.s_q : p.s_k, 16), 1, heads);
  return launch(gradients, grid_lines, square, 0, stream, p, q, k, grad_o, P, dS, static_cast<bf16*>(t.grad_q),
                static_cast<bf16*>(t.grad_k), static_cast<bf16*>(t.grad_v));
}

}  // namespace

extern const Step naive;
const Step naive = {
    "naive",
    "Three kernels, P and dS in memory",
    "01_naive.cu",
    "This step is the definition, with a thread for every pair of a query and a key, and one for every element of the "
    "gradients. P and dS have s_q x s_k numbers each for each head, together 4.3 GB for 128 heads of 2048. They are "
    "written, P is read twice and dS once by the softmax, which writes dS again, and all is read for the gradients, in "
    "rows for dQ and in columns for dK and dV. As in the forward ladder the traffic is not even the worst: each "
    "multiplication fetches both its numbers through the load units, and in the first kernel the 16 keys that a warp "
    "looks at lie in a cache line each.",
    pair_bytes,
    run};

}  // namespace falchion::ladder::backward::on_gpu
