// src/sm80/attention_combine.cuh: parts over disjoint keys -> O and LSE: O = sum of O_i 2^(LSE_i - LSE), in the order
// of the parts, so that two runs agree to the bit.
#pragma once

#include "blocks/sm80_softmax.cuh"
#include "gpu/attention_args.hpp"

namespace falchion::sm80 {

using gpu::AttentionArgs;

/// Weight of each part of a row, 2^(LSE_i - LSE), into shared memory, -1 for an empty part; returns the LSE of all. One
/// warp.
__device__ __forceinline__ float weigh_parts(const AttentionArgs& a, std::int64_t row, std::int64_t rows,
                                             float (&weight)[gpu::kMaxSplits]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float m = -FALCHION_INF, l = 0;  // a NaN spreads by the sum
  for (int part = lane; part < a.splits; part += 32) m = fmaxf(m, weight[part] = a.partial_lse[part * rows + row]);
  for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, step));
  const float reference = m == -FALCHION_INF ? 0.f : m;
  for (int part = lane; part < a.splits; part += 32) l += weight[part] = exp2((weight[part] - reference) * kLog2e);
  for (int step = 16; step > 0; step /= 2) l += __shfl_xor_sync(~0u, l, step);
  for (int part = lane; part < a.splits; part += 32)
    weight[part] = a.partial_lse[part * rows + row] == -FALCHION_INF ? -1 : weight[part] / l;
  return l == 0 ? -FALCHION_INF : reference + log2(l) * kLn2;
}

/// One CTA a row (b, i, h), one thread a column. Parts are read eight at a time: one after another each would wait for
/// the memory.
template <class Element>
__global__ void __launch_bounds__(256) attention_combine(const __grid_constant__ AttentionArgs a) {
  __shared__ float weight[gpu::kMaxSplits];
  const std::int64_t rows = a.b * a.s_q * a.h_q, row = blockIdx.x;
  const std::int64_t h = row % a.h_q, i = row / a.h_q % a.s_q, b = row / a.h_q / a.s_q;
  if (a.used_q != nullptr && i >= a.used_q[b]) return;  // past the used length: untouched
  if (threadIdx.x < 32) {
    const float lse = weigh_parts(a, row, rows, weight);
    if (threadIdx.x == 0 && a.lse.data != nullptr)
      static_cast<float*>(a.lse.data)[b * a.lse.stride[0] + h * a.lse.stride[1] + i * a.lse.stride[2]] = lse;
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= a.d_v) return;
  const float* from = a.partial_o + row * a.d_v + column;
  float sum = 0;
#pragma unroll 8
  for (int part = 0; part < a.splits; ++part) {
    const float o = from[part * rows * a.d_v];
    sum += weight[part] < 0 ? 0.f : weight[part] * o;  // what another part dwarfs to 0 still passes on its NaN
  }
  Element* o = static_cast<Element*>(a.o.data) + b * a.o.stride[0] + i * a.o.stride[1] + h * a.o.stride[2];
  o[column] = Element(sum);
}

template <class Element>
int launch_attention_combine(const AttentionArgs& a, void* stream) {
  const auto rows = static_cast<unsigned>(a.b * a.s_q * a.h_q), columns = static_cast<unsigned>(a.d_v + 31) / 32 * 32;
  attention_combine<Element><<<rows, columns, 0, static_cast<cudaStream_t>(stream)>>>(a);
  return cudaGetLastError();
}

}  // namespace falchion::sm80
