// src/ladder/linear/recurrent.cuh: what the recurrent kernels of steps 01, 04 and 05 share: a token in shared memory,
// and the column of S that a thread has in its registers. These steps differ only in how tokens get to shared memory.
#pragma once

#include <algorithm>

#include "ladder/linear/dispatch.cuh"
#include "ladder/linear/sizes.hpp"

namespace falchion::ladder::linear::on_gpu {

inline constexpr int kMostColumns = 128;

/// A token. q and k are filled up with zeros to the size that the kernel was compiled for.
template <int kE>
struct Token {
  alignas(16) float q[kE], k[kE], v[kMostColumns];
};

/// Sets all of the tokens to 0, with all threads of the block. What no load writes stays 0.
template <int kE, int kTokens>
__device__ void clear(Token<kE> (&tokens)[kTokens]) {
  auto* numbers = reinterpret_cast<float*>(tokens);
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(tokens) / sizeof(float)); i += blockDim.x) numbers[i] = 0;
  __syncthreads();
}

/// A column of S in the registers of a thread. 128 numbers would be too many for one thread, so two neighbouring
/// threads share such a column.
template <int kE>
struct Column {
  static constexpr int kShare = kE > 64 ? 2 : 1;
  static constexpr int kRows = kE / kShare;
  float S[kRows] = {};

  static __device__ int number() { return threadIdx.x / kShare; }
  static __device__ int part() { return threadIdx.x % kShare; }
  /// The number of threads of a block: one for each column (or two that share it), but at least E, so that each thread
  /// has at most one number of q and of k to load.
  static int threads(const Problem& p) { return divide_up(std::max(kE, p.d_v * kShare), 32) * 32; }

  /// Computes S += k v^T, then o = q^T S, which is one number of O. All threads of the column return it.
  __device__ float step(const Token<kE>& token) {
    const float v = token.v[number()];
    const auto* k = reinterpret_cast<const float4*>(token.k) + part();
    const auto* q = reinterpret_cast<const float4*>(token.q) + part();
    float o = 0;
#pragma unroll
    for (int r = 0; r < kRows; r += 4) {  // pieces of four rows, which threads that share a column take in turns
      const float4 k4 = k[r / 4 * kShare], q4 = q[r / 4 * kShare];
      S[r] += k4.x * v;
      S[r + 1] += k4.y * v;
      S[r + 2] += k4.z * v;
      S[r + 3] += k4.w * v;
      o += q4.x * S[r];
      o += q4.y * S[r + 1];
      o += q4.z * S[r + 2];
      o += q4.w * S[r + 3];
    }
    if (kShare == 2) o += __shfl_xor_sync(~0u, o, 1);
    return o;
  }
};

/// For steps 04 and 05: what one thread loads of every token, which is four numbers of q, of k or of v. Only the first
/// threads of the block have something to load.
template <int kE>
struct Piece {
  Head<const float> from = {};
  int to = -1;  // the place in a Token; -1: nothing to load

  __device__ Piece(const Problem& p, Head<const float> Q, Head<const float> K, Head<const float> V) {
    int i = 4 * threadIdx.x;
    if (i < p.d_qk) {
      from = {Q.data + i, Q.stride};
      to = i;
    } else if ((i -= p.d_qk) < p.d_qk) {
      from = {K.data + i, K.stride};
      to = kE + i;
    } else if ((i -= p.d_qk) < p.d_v) {
      from = {V.data + i, V.stride};
      to = 2 * kE + i;
    }
  }
  __device__ bool any() const { return to >= 0; }
  __device__ const float4* source(int j) const { return reinterpret_cast<const float4*>(from[j]); }
  __device__ float4* target(Token<kE>& token) const {
    return reinterpret_cast<float4*>(reinterpret_cast<float*>(&token) + to);
  }
};

/// A kernel with one block per head. Kernel has kernel<E>() and kPace.
template <class Kernel>
struct Heads {
  template <class F>
  static Status with_kernel(const Problem& p, const F& f) {
    return with_size<32, 64, 128>(
        p.d_qk, [&](auto e) { return f(Kernel::template kernel<e.value>(), Column<e.value>::threads(p)); });
  }
  static Status cycles(const Problem& p, double* out) {
    return with_kernel(p, [&](auto kernel, int threads) {
      Cost cost = {.blocks = double(p.b) * p.h, .steps = double(p.s)};
      Status status = ask_device(kernel, threads, &cost);
      *out = cost.cycles(Kernel::kPace);
      return status;
    });
  }
  static Status run(const Problem& p, const Tensors& t, Stream stream) {
    if (Status status = p.check(); !status) return status;
    return with_kernel(p, [&](auto kernel, int threads) {
      return launch(kernel, dim3(p.b * p.h), dim3(threads), 0, stream, p, static_cast<const float*>(t.q),
                    static_cast<const float*>(t.k), static_cast<const float*>(t.v), static_cast<float*>(t.o));
    });
  }
};

}  // namespace falchion::ladder::linear::on_gpu
