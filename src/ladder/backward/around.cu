// src/ladder/backward/around.cu: the small kernels before and after the walk of steps 02 to 06.
#include "ladder/backward/around.cuh"

namespace falchion::ladder::backward::on_gpu {
namespace {

/// One warp has one row: its lse, D = the sum of dO O, and 0 for its sums.
__global__ void before(Problem p, const __nv_bfloat16* o, const __nv_bfloat16* grad_o, const float* lse, Sums sums) {
  const int i = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y), bh = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x);
  float D = 0, unit_lse = INFINITY;
  if (i < p.s_q) {
    const auto *O = head_of(p, o, p.s_q, bh)[i], *dO = head_of(p, grad_o, p.s_q, bh)[i];
    float* dQ = head_of(p, sums.grad_q, p.s_q, bh)[i];
    for (int x = lane; x < p.d; x += 32) {
      D += __bfloat162float(dO[x]) * __bfloat162float(O[x]);
      dQ[x] = 0;
    }
    for (int other = 16; other > 0; other /= 2) D += __shfl_xor_sync(~0u, D, other);
    const float of_row = lse[std::int64_t{bh} * p.s_q + i];
    if (of_row != -INFINITY) unit_lse = of_row * float(M_LOG2E);
  }
  if (lane > 0) return;
  sums.lse[std::int64_t{bh} * padded_rows(p) + i] = unit_lse;
  sums.delta[std::int64_t{bh} * padded_rows(p) + i] = D;
}

/// dQ = scale times its sum, in bf16, two neighbouring numbers a thread.
__global__ void after(Problem p, Sums sums, __nv_bfloat162* grad_q, std::int64_t pairs) {
  const std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (e >= pairs) return;
  const float2 sum = reinterpret_cast<const float2*>(sums.grad_q)[e];
  grad_q[e] = __floats2bfloat162_rn(p.scale * sum.x, p.scale * sum.y);
}

}  // namespace

Status run_before(const Problem& p, const Tensors& t, const Sums& sums, Stream stream) {
  return launch(before, dim3(padded_rows(p) / 8, p.b * p.h), dim3(32, 8), 0, stream, p,
                static_cast<const __nv_bfloat16*>(t.o), static_cast<const __nv_bfloat16*>(t.grad_o), t.lse, sums);
}

Status run_after(const Problem& p, const Tensors& t, const Sums& sums, Stream stream) {
  const std::int64_t pairs = std::int64_t{p.b} * p.s_q * p.h * p.d / 2;
  return launch(after, dim3(static_cast<unsigned>((pairs + 255) / 256)), dim3(256), 0, stream, p, sums,
                static_cast<__nv_bfloat162*>(t.grad_q), pairs);
}

}  // namespace falchion::ladder::backward::on_gpu
