// src/sm80/attention_combine.cuh: parts over disjoint keys -> O and LSE: O = sum of O_i 2^(LSE_i - LSE), in the order
// of the parts, so that two runs agree to the bit.
#pragma once

#include "blocks/sm80_softmax.cuh"
#include "gpu/attention_args.hpp"

namespace falchion::sm80 {

using gpu::AttentionArgs;

/// One warp a row (b, i, h); a lane takes columns lane, lane + 32, ...
template <class Element>
__global__ void __launch_bounds__(128) attention_combine(const __grid_constant__ AttentionArgs a) {
  const std::int64_t rows = a.b * a.s_q * a.h_q;
  const std::int64_t row = std::int64_t{blockIdx.x} * 4 + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= rows) return;
  const std::int64_t h = row % a.h_q, i = row / a.h_q % a.s_q, b = row / a.h_q / a.s_q;
  if (a.used_q != nullptr && i >= a.used_q[b]) return;  // past the used length: untouched

  float m = -FALCHION_INF, l = 0;  // over the parts: each lane looks at some, NaN spreads by the sum
  for (int part = lane; part < a.splits; part += 32) m = fmaxf(m, a.partial_lse[part * rows + row]);
  for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, step));
  const float reference = m == -FALCHION_INF ? 0.f : m;
  for (int part = lane; part < a.splits; part += 32) l += exp2((a.partial_lse[part * rows + row] - reference) * kLog2e);
  for (int step = 16; step > 0; step /= 2) l += __shfl_xor_sync(~0u, l, step);
  const float lse = l == 0 ? -FALCHION_INF : reference + log2(l) * kLn2, normal = l == 0 ? 0.f : 1 / l;

  Element* o = static_cast<Element*>(a.o.data) + b * a.o.stride[0] + i * a.o.stride[1] + h * a.o.stride[2];
  for (int column = lane; column < a.d_v; column += 32) {
    float sum = 0;
    for (int part = 0; part < a.splits; ++part) {
      const float weight = exp2((a.partial_lse[part * rows + row] - reference) * kLog2e) * normal;
      if (weight != 0) sum += weight * a.partial_o[(part * rows + row) * a.d_v + column];
    }
    o[column] = Element(sum);
  }
  if (lane == 0 && a.lse.data != nullptr) {
    static_cast<float*>(a.lse.data)[b * a.lse.stride[0] + h * a.lse.stride[1] + i * a.lse.stride[2]] = lse;
  }
}

template <class Element>
int launch_attention_combine(const AttentionArgs& a, void* stream) {
  const std::int64_t rows = a.b * a.s_q * a.h_q;
  attention_combine<Element><<<static_cast<unsigned>((rows + 3) / 4), 128, 0, static_cast<cudaStream_t>(stream)>>>(a);
  return cudaGetLastError();
}

}  // namespace falchion::sm80
