// src/ladder/attention/01_naive.cu: attention as it is written on a blackboard, in three kernels: S = Q K^T, P =
// softmax(S), O = P V. Between them S (b, h, s_q, s_k) lies in global memory in f32.
#include <cuda_bf16.h>

#include "ladder/attention/launch.cuh"

namespace falchion::ladder::on_gpu {
namespace {

using bf16 = __nv_bfloat16;

/// One thread computes one score. Q (s_q, d), K (s_k, d) -> S (s_q, s_k)
__global__ void scores(Problem p, const bf16* q, const bf16* k, float* s) {
  // Squares are numbered along x, since a grid has no more than 65535 blocks along y: here those of 16 x 16 scores.
  const unsigned across = (p.s_k + 15) / 16;
  const int j = blockIdx.x % across * 16 + threadIdx.x;
  const int i = blockIdx.x / across * 16 + threadIdx.y;
  const int bh = blockIdx.z;
  if (i >= p.s_q || j >= p.s_k) return;
  const Head<const bf16> Q = head_of(p, q, p.s_q, bh), K = head_of(p, k, p.s_k, bh);
  float dot = 0;
  for (int x = 0; x < p.d; ++x) dot += __bfloat162float(Q[i][x]) * __bfloat162float(K[j][x]);
  s[(std::int64_t{bh} * p.s_q + i) * p.s_k + j] = p.mask().keep(i, j) ? p.scale * dot : -INFINITY;
}

/// One warp computes one row. S -> P, in place
__global__ void softmax(Problem p, float* s) {
  const int i = blockIdx.x * blockDim.y + threadIdx.y;
  const int bh = blockIdx.y;
  const int lane = threadIdx.x;
  if (i >= p.s_q) return;
  float* row = s + (std::int64_t{bh} * p.s_q + i) * p.s_k;
  float m = -INFINITY, l = 0;
  for (int j = lane; j < p.s_k; j += 32) m = fmaxf(m, row[j]);
  for (int other = 16; other > 0; other /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, other));
  for (int j = lane; j < p.s_k; j += 32) l += row[j] = weight(row[j], m);
  for (int other = 16; other > 0; other /= 2) l += __shfl_xor_sync(~0u, l, other);
  for (int j = lane; j < p.s_k; j += 32) row[j] = l == 0 ? 0 : row[j] / l;
}

/// One thread computes one element of O. P (s_q, s_k), V (s_k, d) -> O (s_q, d)
__global__ void values(Problem p, const float* s, const bf16* v, bf16* o) {
  const unsigned across = p.d / 16;
  const int x = blockIdx.x % across * 16 + threadIdx.x;
  const int i = blockIdx.x / across * 16 + threadIdx.y;
  const int bh = blockIdx.z;
  if (i >= p.s_q) return;
  const float* row = s + (std::int64_t{bh} * p.s_q + i) * p.s_k;
  const Head<const bf16> V = head_of(p, v, p.s_k, bh);
  float sum = 0;
  for (int j = 0; j < p.s_k; ++j) sum += row[j] * __bfloat162float(V[j][x]);
  head_of(p, o, p.s_q, bh)[i][x] = __float2bfloat16(sum);
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  const auto *q = static_cast<const bf16*>(t.q), *k = static_cast<const bf16*>(t.k), *v = static_cast<const bf16*>(t.v);
  auto* s = static_cast<float*>(t.workspace);
  const unsigned heads = p.b * p.h, row_blocks = divide_up(p.s_q, 16);
  const dim3 square(16, 16);
  if (Status status = launch(scores, dim3(divide_up(p.s_k, 16) * row_blocks, 1, heads), square, 0, stream, p, q, k, s);
      !status)
    return status;
  if (Status status = launch(softmax, dim3(divide_up(p.s_q, 8), heads), dim3(32, 8), 0, stream, p, s); !status)
    return status;
  return launch(values, dim3(p.d / 16 * row_blocks, 1, heads), square, 0, stream, p, s, v, static_cast<bf16*>(t.o));
}

}  // namespace

extern const Step naive;
const Step naive = {
    "naive",
    "Three kernels, S in memory",
    "01_naive.cu",
    "This step is the definition, with a thread for every score and for every element of O. S has s_q x s_k numbers "
    "for each head, which is 2.1 GB for 128 heads of 2048. It is written, then read and written by the softmax, and "
    "then read again. That is 8.6 GB, while Q, K, V and O together have 0.13 GB. It gets worse: each multiplication "
    "fetches both its numbers through the load units, and the 16 keys that a warp looks at lie in a cache line each. "
    "So 32 multiplications take 18 lines.",
    score_bytes,
    run};

}  // namespace falchion::ladder::on_gpu
