// src/sm80/linear_attention/exact/normaliser.cuh: computes 1 / n of all tokens for kind `exact`, where n_t = scale
// phi(q_t) . z_t + eps. z is a vector beside the state. It processes one token after another, 512 tokens per CTA,
// independent of the segments of the sweeps.
#pragma once

#include "base/host_device.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "sm80/linear_attention/exact/rows.cuh"
#include "tiles/linear_attention/sm80_workspace.hpp"

namespace falchion::sm80 {

using namespace gpu;

inline constexpr int kNormaliserTile = 16;

/// Shared memory (token, column) for the products that n is the sum of: those of phi(q) with z without the token's own
/// phi(k), and those with this phi(k). They are summed separately: with a strong decay the first sum is so small beside
/// the second that it would be lost in the difference of n and the second.
struct NormaliserProducts {
  float (*others)[257] = nullptr;
  float (*own)[257] = nullptr;
};

/// The work of one thread, which has column e of phi(q), phi(k) and z.
template <class Element>
class LinearNormalisers {
 public:
  using Rows16 = LinearSweep::Rows16;

  FALCHION_DEVICE LinearNormalisers(const gpu::LinearAttentionArgs& a, const LinearSweep& sweep,
                                    const LinearPiece& piece)
      : a(a), sweep(sweep), piece(piece), e(static_cast<int>(threadIdx.x)), inside(e < sweep.d_qk) {
    const int column = min(e, sweep.d_qk - 1);
    q = piece.base<const Element>(sweep.q) + piece.first * sweep.q.x.stride[1] + column;
    k = piece.base<const Element>(sweep.k) + piece.first * sweep.k.x.stride[1] + column;
    step_q = piece.step * sweep.q.x.stride[1];
    step_k = piece.step * sweep.k.x.stride[1];
  }
  static FALCHION_DEVICE float mapped(Element x, const Rows16& of) {
    const float value = static_cast<float>(x);
    return of.phi ? phi_exact<Element>(value) : value;
  }
  /// Adds kNormaliserTile tokens to z, from `token` on, and writes their products. products is null if only z is
  /// needed. The tokens are summed separately first, because each addition to a running sum rounds at its magnitude, in
  /// the same direction where the tokens are equal: after 955 of them z had an error of 7e-6.
  FALCHION_DEVICE void take_in(int token, const float* fades, const NormaliserProducts& products) {
    float faded = 1, sum = 0;  // z becomes faded * z + sum, the sum of these tokens
    CUTE_NO_UNROLL
    for (int i0 = 0; i0 < kNormaliserTile; i0 += 8) {
      // All loads are issued first and unconditionally, so that their latencies overlap.
      Element new_k[8], new_q[8];
      CUTE_UNROLL
      for (int i = 0; i < 8; ++i) {
        const std::int64_t at = min(token + i0 + i, piece.tokens - 1);
        new_k[i] = k[at * step_k];
        new_q[i] = products.own != nullptr ? q[at * step_q] : Element(0);
      }
      CUTE_UNROLL
      for (int i = 0; i < 8; ++i) {
        const bool there = inside && token + i0 + i < piece.tokens;
        const float more = there ? mapped(new_k[i], sweep.k) : 0.f;
        faded *= fades[i0 + i];
        sum *= fades[i0 + i];
        const float before = fmaf(z, faded, sum);
        sum += more;
        if (products.own == nullptr) continue;
        const float weight = there ? mapped(new_q[i], sweep.q) : 0.f;
        products.others[i0 + i][e] = there ? weight * before : 0.f;
        products.own[i0 + i][e] = weight * more;
      }
    }
    z = fmaf(z, faded, sum);
  }
  /// Sums the products and stores 1 / n of each token. others (see LinearNormaliser) is null if only 1 / n is needed.
  FALCHION_DEVICE void store(int token, const NormaliserProducts& products, float* inverse, float* others) const {
    const int lane = e % 32, warps = static_cast<int>(blockDim.x) / 32;
    for (int i = e / 32; i < kNormaliserTile && token + i < piece.tokens; i += warps) {
      float rest = 0, own = 0;
      for (int column = lane; column < sweep.d_qk; column += 32) {
        rest += products.others[i][column];
        own += products.own[i][column];
      }
      rest = fmaf(sum_of_warp(rest), sweep.scale, sweep.eps);
      own = sum_of_warp(own);
      if (lane != 0) continue;
      const float x = __fdividef(1, fmaf(own, sweep.scale, rest));
      inverse[piece.at_token(token + i)] = x;
      if (others != nullptr) others[piece.at_token(token + i)] = rest * x;
    }
  }

  const gpu::LinearAttentionArgs& a;
  const LinearSweep& sweep;
  const LinearPiece& piece;
  const Element *q, *k;
  std::int64_t step_q, step_k;
  int e;
  bool inside;
  float z = 0;
};

/// Here a.segments and a.segment are the pieces of this kernel, not the segments of the sweeps. With kSums it computes
/// only what each piece adds to z, for all pieces but the last.
template <class Element, bool kSums>
__global__ void __launch_bounds__(256) linear_attention_normalisers(const __grid_constant__ gpu::LinearAttentionArgs a,
                                                                    const __grid_constant__ LinearSweep sweep,
                                                                    float* slots, float* inverse, float* others) {
  __shared__ float of_others[kSums ? 1 : kNormaliserTile][257], of_own[kSums ? 1 : kNormaliserTile][257];
  __shared__ float fades[kNormaliserTile];
  const NormaliserProducts products = kSums ? NormaliserProducts{} : NormaliserProducts{of_others, of_own};
  const int pieces = kSums ? a.segments - 1 : a.segments;
  const int n = static_cast<int>(blockIdx.x) % pieces, head = static_cast<int>(blockIdx.x) / pieces;
  const int h = head % static_cast<int>(a.h_v), b = head / static_cast<int>(a.h_v);
  const LinearPiece piece(a, sweep, b, h, n, 0);
  const DecayOfChunk<true> decay(sweep, piece);
  LinearNormalisers<Element> column(a, sweep, piece);
  const int e = column.e;

  float* slot = slots + std::int64_t{head} * a.segments * normaliser_slot(a);
  float* start = slot + (a.segments - 1) * normaliser_slot(a);
  const auto initial = [&] {
    if (sweep.initial_z.data == nullptr || !column.inside) return 0.f;
    const View& x = sweep.initial_z;
    return static_cast<const float*>(x.data)[b * x.stride[0] + h * x.stride[1] + e * x.stride[2]];
  };
  if (kSums && n == 0 && column.inside) start[e] = initial();
  if (!kSums && a.segments == 1) column.z = initial();
  if (!kSums && a.segments > 1 && column.inside) {
    column.z = start[e];
    for (int before = 0; before < n; ++before) {
      const float* added = slot + before * normaliser_slot(a);
      column.z = fmaf(column.z, exp2(added[a.d_qk]), added[e]);
    }
  }
  float faded = 0;
  for (int token = 0; token < piece.tokens; token += kNormaliserTile) {
    if (e < kNormaliserTile) {
      const float bits = decay.bits(token + e);
      fades[e] = exp2(bits);
      faded += bits;
    }
    __syncthreads();
    column.take_in(token, fades, products);
    __syncthreads();
    if constexpr (!kSums) column.store(token, products, inverse, others);
  }
  if constexpr (kSums) {
    if (column.inside) slot[n * normaliser_slot(a) + e] = column.z;
    if (e < 32) {
      for (int lanes = 1; lanes < 32; lanes *= 2) faded += __shfl_xor_sync(~0u, faded, lanes);
      if (e == 0) slot[n * normaliser_slot(a) + a.d_qk] = faded;
    }
    return;
  }
  if (n + 1 < a.segments || sweep.final_z.data == nullptr || !column.inside) return;
  const View& x = sweep.final_z;
  static_cast<float*>(x.data)[b * x.stride[0] + h * x.stride[1] + e * x.stride[2]] = column.z;
}

template <class Element>
cudaError_t launch_linear_normalisers(gpu::LinearAttentionArgs a, const LinearSweep& sweep, float* slots,
                                      float* inverse, float* others, void* stream) {
  a.segments = normaliser_pieces(a);
  a.segment = kNormaliserTokens;
  const std::int64_t heads = a.b * a.h_v;
  const int threads = static_cast<int>((a.d_qk + 63) / 64 * 64);
  if (heads * a.segments > INT32_MAX) return cudaErrorInvalidConfiguration;
  if (heads == 0) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  if (a.segments > 1)
    error = launch_kernel<linear_attention_normalisers<Element, true>>(
        static_cast<unsigned>(heads * (a.segments - 1)), threads, 0, stream, false, a, sweep, slots, inverse, others);
  if (error == cudaSuccess)
    error = launch_kernel<linear_attention_normalisers<Element, false>>(
        static_cast<unsigned>(heads * a.segments), threads, 0, stream, false, a, sweep, slots, inverse, others);
  return error;
}

}  // namespace falchion::sm80
