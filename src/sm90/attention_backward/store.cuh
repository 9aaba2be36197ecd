// src/sm90/attention_backward/store.cuh: the end of Hopper's backward pass. grad_k and grad_v are stored straight from
// the registers, and a small kernel turns the sums into grad_q.
#pragma once

#include "gpu/attention_backward/store.cuh"
#include "gpu/blocks/stream_order.cuh"
#include "sm90/attention_backward/config.hpp"

namespace falchion::sm90 {

using namespace gpu;

/// Turns the sums of one tile of rows of one head into grad_q. The sums lie in the register order of the warpgroups
/// that made them. A row outside its sequence gets 0, and so does a tile that sees no key, for which there is no sum.
template <class Config>
__global__ void __launch_bounds__(128 * Config::kConsumers)
    finish_grad_q(const __grid_constant__ AttentionBackwardArgs a, const __grid_constant__ BackwardDivisors by) {
  using Element = typename Config::Element;
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto t = SummedRows<Config::kRows>::of(a, by, static_cast<int>(blockIdx.x));
  if (t.row0 >= t.q.length) return;
  const int part = static_cast<int>(threadIdx.x) / 128;
  const auto* sums = reinterpret_cast<const float4*>(BackwardLayout::of(a).grad_q_sums(a) + t.first * Config::kD +
                                                     part * Config::kSizeDq) +
                     threadIdx.x % 128;
  float sum[Config::kSizeDq / 128];
  CUTE_UNROLL
  for (int n = 0; n < Config::kColumnsDq / 8; ++n)
    reinterpret_cast<float4*>(sum)[n] = t.summed ? sums[n * 128] : float4{};
  const int row = (Config::kByColumns ? 0 : 64 * part);
  store_rows<Element, Config::kColumnsDq, 4>(
      a, t.to(a, row, Config::kByColumns ? part * Config::kColumnsDq : 0), [&](int e) { return sum[e]; },
      [&](int row) { return t.counts(a, row); });
}

}  // namespace falchion::sm90
