// src/sm80/linear_attention/exact/gradients.cuh: the last kernels of the backward pass of kind `exact`. They turn the
// f32 results of the sweeps into the requested gradients: they sum over value heads that share q and k, multiply by the
// slope of phi, and compute the gradient of the decay:
//   dG_j = phi(q_j) . dphi(q_j) - phi(k_j) . dphi(k_j),    dg_t = sum_{j >= t} dG_j + <S_L, dS_L>
// A token's contribution to itself is in both dphi(q_j) and dphi(k_j), and cancels. The last token's contribution to
// the final state is in both dphi(k_L) and S_L, and cancels too. Both are left out on both sides, because for g = -15
// everything else is 3e-7 of them and would be lost in rounding. Without them the last token has no k side, and S_L
// becomes S' = e^(g_L) S_(L-1).
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "sm80/linear_attention/exact/rows.cuh"
#include "tiles/linear_attention/sm80_workspace.hpp"

namespace falchion::sm80 {

using namespace gpu;

inline constexpr int kGradientWarps = 4;

/// Whether this row of a batch entry is the last token of its sequence, in the order of the recurrence.
FALCHION_DEVICE bool is_last_token(const gpu::LinearAttentionArgs& a, std::int64_t row) {
  if (!a.packed) return row == (a.reverse ? 0 : a.s - 1);
  const std::int64_t end = a.reverse ? row : row + 1;
  std::int64_t low = 0, high = a.b;  // the first bound that is not below `end` has an index from low to high
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (a.cu_seqlens[middle] < end) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return a.cu_seqlens[low] == end;
}

template <class Element>
FALCHION_DEVICE float dot_of_warp(const Element* x, const Element* y, std::int64_t n) {
  float sum = 0;
#pragma unroll 2
  for (std::int64_t i = static_cast<int>(threadIdx.x) % 32; i < n; i += 32)
    sum = fmaf(static_cast<float>(x[i]), static_cast<float>(y[i]), sum);
  return sum_of_warp(sum);
}

/// Each warp has one token of one head of q and k.
template <class Element>
__global__ void __launch_bounds__(32 * kGradientWarps)
    linear_attention_gather(const __grid_constant__ gpu::LinearAttentionArgs a,
                            const __grid_constant__ LinearPartials partials,
                            const __grid_constant__ LinearNormaliser normaliser, std::int64_t tokens) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t index = std::int64_t{blockIdx.x} * kGradientWarps + threadIdx.x / 32;
  const std::int64_t token = index / a.h_qk;
  const std::int64_t h_qk = index % a.h_qk;
  const std::int64_t shared = a.h_v / a.h_qk;
  if (token >= tokens) return;
  if (a.packed && (token < a.cu_seqlens[0] || token >= a.cu_seqlens[a.b])) return;  // it belongs to no sequence
  const std::int64_t batch = a.packed ? 0 : token / a.s, row = a.packed ? token : token % a.s;
  const auto at = [&](const View& x, std::int64_t head) {
    return static_cast<Element*>(x.data) + batch * x.stride[0] + row * x.stride[1] + head * x.stride[2];
  };
  const Element *q = at(a.q, h_qk), *k = at(a.k, h_qk);
  Element *grad_q = at(a.grad_q, h_qk), *grad_k = at(a.grad_k, h_qk);
  const float* part_q = partials.q + (token * a.h_v + h_qk * shared) * a.d_qk;
  const float* part_k = partials.k + (token * a.h_v + h_qk * shared) * a.d_qk;
  const auto mapped = [&](Element x) {
    return a.elu ? phi_exact<Element>(static_cast<float>(x)) : static_cast<float>(x);
  };
  const auto slope = [&](Element x) { return a.elu ? phi_slope(static_cast<float>(x)) : 1.f; };
  const bool last = partials.dg != nullptr && is_last_token(a, row);
  for (std::int64_t i = 0; partials.dg != nullptr && i < shared; ++i) {
    float sum = 0;
    for (std::int64_t e = lane; e < a.d_qk; e += 32) {
      sum += mapped(q[e]) * part_q[i * a.d_qk + e];
      if (!last) sum -= mapped(k[e]) * part_k[i * a.d_qk + e];
    }
    sum = sum_of_warp(sum);
    if (lane == 0) partials.dg[token * a.h_v + h_qk * shared + i] = sum;
  }
  const bool with_own = own_parts_are_added(a);
  // The weight of the token's own k in its dq, and of its own q in its dk, summed over value heads.
  float own = 0;
  CUTE_NO_UNROLL
  for (std::int64_t i = 0; with_own && i < shared; ++i) {
    const std::int64_t h = h_qk * shared + i;
    own += a.scale * (a.normalise ? normaliser.of_token(token * a.h_v + h, static_cast<int>(a.h_v)).own
                                  : dot_of_warp(at(a.v, h), at(a.grad_o, h), a.d_v));
  }
  for (std::int64_t e = lane; e < a.d_qk; e += 32) {
    float sum_q = with_own ? own * mapped(k[e]) : 0, sum_k = with_own ? own * mapped(q[e]) : 0;
    for (std::int64_t i = 0; i < shared; ++i) {
      sum_q += part_q[i * a.d_qk + e];
      sum_k += part_k[i * a.d_qk + e];
    }
    grad_q[e] = static_cast<Element>(sum_q * slope(q[e]));
    grad_k[e] = static_cast<Element>(sum_k * slope(k[e]));
  }
}

inline constexpr int kScanThreads = 256;

/// The sum of x over the threads of the CTA up to this one, and over all of them.
struct BlockScan {
  double upto, all;
};
FALCHION_DEVICE BlockScan scan_block(double x, double* of_warps) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int distance = 1; distance < 32; distance *= 2) {
    const double before = __shfl_up_sync(~0u, x, distance);
    if (lane >= distance) x += before;
  }
  __syncthreads();
  if (lane == 31) of_warps[warp] = x;
  __syncthreads();
  double before = 0, all = 0;
  for (int w = 0; w < kScanThreads / 32; ++w) {
    if (w < warp) before += of_warps[w];
    all += of_warps[w];
  }
  return {before + x, all};
}

/// Computes the gradient of the decay: sums of dG in double, from the last token of the recurrence on. For a decay that
/// is constant per head it computes one sum over all tokens of all sequences.
static __global__ void __launch_bounds__(kScanThreads)
    linear_attention_decay_gradient(const __grid_constant__ gpu::LinearAttentionArgs a,
                                    const __grid_constant__ LinearPartials partials) {
  __shared__ double of_warps[kScanThreads / 32];
  const bool of_head = a.decay_by_head;
  const std::int64_t h = blockIdx.x % a.h_v, first = of_head ? 0 : blockIdx.x / a.h_v;
  const View& out = a.grad_decay;
  auto* const grad = static_cast<float*>(out.data);
  double head = 0;
  for (std::int64_t b = first; b < (of_head ? a.b : first + 1); ++b) {
    const Rows rows = Rows::of(static_cast<int>(b), a.packed ? a.cu_seqlens : nullptr, a.total, a.s, nullptr);
    double later = 0;
    for (int i = 0; partials.tails != nullptr && i < partials.tiles; ++i)
      later += static_cast<double>(partials.tails[(b * a.h_v + h) * partials.tiles + i]);
    for (int behind = 0; behind < rows.length; behind += kScanThreads) {
      const int j = rows.length - 1 - behind - static_cast<int>(threadIdx.x);
      const std::int64_t row = rows.begin + (a.reverse ? rows.length - 1 - j : j);
      const double own = j < 0 ? 0 : static_cast<double>(partials.dg[((a.packed ? 0 : b * a.s) + row) * a.h_v + h]);
      const BlockScan sum = scan_block(own, of_warps);
      if (j >= 0 && of_head) head += later + sum.upto;
      if (j >= 0 && !of_head)
        grad[rows.batch * out.stride[0] + row * out.stride[1] + h * out.stride[2]] =
            static_cast<float>(later + sum.upto);
      later += sum.all;
    }
  }
  if (!of_head) return;
  const double all = scan_block(head, of_warps).all;
  if (threadIdx.x == 0) grad[h * out.stride[2]] = static_cast<float>(all);
}

template <class Element>
cudaError_t launch_linear_gradients(const gpu::LinearAttentionArgs& a, const LinearPartials& partials,
                                    const LinearNormaliser& normaliser, std::int64_t tokens, void* stream) {
  if (partials.q == nullptr) return cudaSuccess;
  const std::int64_t blocks = (tokens * a.h_qk + kGradientWarps - 1) / kGradientWarps;
  if (blocks > INT32_MAX || a.b * a.h_v > INT32_MAX) return cudaErrorInvalidConfiguration;
  cudaError_t error = cudaSuccess;
  if (blocks > 0)
    error = launch_kernel<linear_attention_gather<Element>>(static_cast<unsigned>(blocks), 32 * kGradientWarps, 0,
                                                            stream, false, a, partials, normaliser, tokens);
  if (error != cudaSuccess || partials.dg == nullptr || a.grad_decay.data == nullptr)
    return error;  // null where there is no token
  const std::int64_t sums = a.decay_by_head ? a.h_v : a.b * a.h_v;
  if (sums == 0) return error;
  return launch_kernel<linear_attention_decay_gradient>(static_cast<unsigned>(sums), kScanThreads, 0, stream, false, a,
                                                        partials);
}

}  // namespace falchion::sm80
