// src/ladder/attention/tensor_core.cuh: what steps 04 to 06 share: the tile, softmax and mask on the fragments that
// tensor cores return, and the store of O. These steps differ only in how tiles get into shared memory and out of it.
// Steps 07 to 10 use softmax, mask and store too.
#pragma once

#include <cuda_bf16.h>

#include <cute/tensor.hpp>

#include "ladder/attention/launch.cuh"

namespace falchion::ladder::on_gpu {

using namespace cute;  // NOLINT: the letters of its layouts are what these files are about
using cute::Tensor;    // not falchion's
using bf16 = cute::bfloat16_t;

/// A tile of four warps. O of a tile takes 64 registers per thread, whatever d is. At d 64 a warp has 32 query rows, so
/// that each key that it fetches serves two multiplications.
template <int d>
struct TensorCoreTile {
  static constexpr int kD = d;
  static constexpr int kM = 8192 / kD;
  static constexpr int kN = 64;
  static constexpr int kThreads = 128;
  using D = Int<kD>;
  using M = Int<kM>;
  using N = Int<kN>;
  using Mma = TiledMMA<MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>, Layout<Shape<_4, _1, _1>>, Tile<_64, _16, _16>>;
};

/// The fragment of a result, ((2, 2), M, N), seen as (rows, columns) of this thread.
template <class Fragment>
__device__ auto rows_and_columns(Fragment& x) {
  const auto l = logical_divide(x.layout(), Shape<_2>{});  // ((2, 2), M, N)
  return make_tensor(x.data(), make_layout(make_layout(get<0, 1>(l), get<1>(l)), make_layout(get<0, 0>(l), get<2>(l))));
}

/// Rounds P from f32 ((2, 2), M, N) to bf16 in the order of operand A, ((2, 2, 2), M, N / 2). Two neighbouring results
/// are one operand, in the registers where they already lie.
template <class Fragment>
__device__ auto to_operand(const Fragment& x) {
  Tensor rounded = make_fragment_like<bf16>(x);
  CUTE_UNROLL
  for (int i = 0; i < size(x) / 2; ++i)
    recast<__nv_bfloat162>(rounded)(i) = __float22bfloat162_rn(recast<const float2>(x)(i));
  const auto l = logical_divide(rounded.layout(), Shape<Underscore, Underscore, _2>{});  // ((2, 2), M, (2, N / 2))
  Tensor out = make_tensor<bf16>(make_layout(make_layout(get<0>(l), get<2, 0>(l)), get<1>(l), get<2, 1>(l)));
  copy(rounded, make_tensor(out.data(), rounded.layout()));
  return out;
}

/// Sets S (rows, columns) to -inf where the mask says so. `at` has the coordinates of each element in its tile.
template <class S, class Coordinates>
__device__ void apply_mask(S& scores, const Coordinates& at, const BandMask& mask, int q0, int k0) {
  CUTE_UNROLL
  for (int e = 0; e < size(scores); ++e)
    if (!mask.keep(q0 + get<0>(at(e)), k0 + get<1>(at(e)))) scores(e) = -INFINITY;
}

/// scale_rows, for one row.
template <class Output>
__device__ void scale_row(Output& O, int r, float factor) {
  CUTE_UNROLL
  for (int x = 0; x < size<1>(O); ++x) O(r, x) *= factor;
}

/// m and l of the rows of one thread. A row is spread over 4 threads. m is in units of Q K^T, and l is the sum over
/// this thread's columns.
template <int kRows>
struct OnlineSoftmax {
  float m[kRows], l[kRows];

  __device__ OnlineSoftmax() {
    for (int r = 0; r < kRows; ++r) {
      m[r] = -INFINITY;
      l[r] = 0;
    }
  }
  static __device__ float max_of_four(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
  }
  static __device__ float sum_of_four(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
  }

  /// softmax.update: replaces row r of S by P = exp(scale (S - m)), computed as 2^(c S - c m) with c = scale log2 e,
  /// which takes one multiply-add and one exponential per score. Returns what O must be multiplied by, because O is
  /// relative to the m before.
  template <class Scores>
  __device__ float update_row(Scores& S, int r, float c) {
    float m_new = m[r];
    CUTE_UNROLL
    for (int n = 0; n < size<1>(S); ++n) m_new = fmaxf(m_new, S(r, n));
    m_new = max_of_four(m_new);
    const float reference = m_new == -INFINITY ? 0 : c * m_new;  // 0 where no key is seen: -inf - -inf is NaN
    const float shrink = exp2f(c * m[r] - reference);
    m[r] = m_new;
    l[r] *= shrink;
    CUTE_UNROLL
    for (int n = 0; n < size<1>(S); ++n) l[r] += S(r, n) = exp2f(c * S(r, n) - reference);
    return shrink;
  }
  /// softmax.update and scale_rows: O (rows, columns) follows the new m.
  template <class Scores, class Output>
  __device__ void update(Scores& S, Output& O, float c) {
    CUTE_UNROLL
    for (int r = 0; r < kRows; ++r) scale_row(O, r, update_row(S, r, c));
  }
};

/// finish, store: stores O = diag(l)^-1 O in bf16, only rows below s_q. `at` has the coordinates of each element of O
/// (rows, columns).
template <class Output, class Coordinates, class Softmax>
__device__ void store(const Output& O, const Coordinates& at, const Softmax& softmax, Head<bf16> gO, int q0, int s_q) {
  CUTE_UNROLL
  for (int r = 0; r < size<0>(O); ++r) {
    const float l = Softmax::sum_of_four(softmax.l[r]);
    const float inverse = l == 0 ? 0 : 1 / l;
    const int i = q0 + get<0>(at(r, 0));
    if (i >= s_q) continue;
    CUTE_UNROLL
    for (int x = 0; x < size<1>(O); x += 2)  // columns come in pairs
      *reinterpret_cast<__nv_bfloat162*>(&gO[i][get<1>(at(r, x))]) =
          __floats2bfloat162_rn(inverse * O(r, x), inverse * O(r, x + 1));
  }
}

/// load: copies rows [row0, row0 + rows of the tile) of X to shared memory, 16 bytes per thread at a time, and 0 past
/// the end of X.
template <class Tile, class Shared>
__device__ void load(Shared&& tile, Head<const bf16> X, int row0, int rows) {
  CUTE_UNROLL
  for (int e = threadIdx.x; e < size(tile) / 8; e += Tile::kThreads) {
    const int row = e / (Tile::kD / 8), x = e % (Tile::kD / 8) * 8;
    uint4 value = {};
    if (row0 + row < rows) value = *reinterpret_cast<const uint4*>(&X[row0 + row][x]);
    *reinterpret_cast<uint4*>(&tile(row, x)) = value;
  }
}

/// 8 rows of 64 numbers, 128 bytes each, where piece c of row r lies at c ^ r. A tile consists of as many of these as
/// it needs.
using SwizzledAtom = decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, _64>, Stride<_64, _1>>{}));

/// load, but the copy runs on its own (cp.async), and nobody waits for it before cp_async_wait.
template <class Tile, class Shared>
__device__ void load_async(Shared&& tile, Head<const bf16> X, int row0, int rows) {
  CUTE_UNROLL
  for (int e = threadIdx.x; e < size(tile) / 8; e += Tile::kThreads) {
    const int row = e / (Tile::kD / 8), x = e % (Tile::kD / 8) * 8;
    const auto* from = reinterpret_cast<const uint128_t*>(&X[min(row0 + row, rows - 1)][x]);
    auto* to = reinterpret_cast<uint128_t*>(&tile(row, x));
    SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>::copy(*from, *to, row0 + row < rows);
  }
}

template <class Tile, class Kernel>
Status launch_tiles(Kernel kernel, int shared_bytes, const Problem& p, const Tensors& t, Stream stream) {
  return launch(kernel, dim3(divide_up(p.s_q, Tile::kM), p.b * p.h), dim3(Tile::kThreads), shared_bytes, stream, p,
                static_cast<const bf16*>(t.q), static_cast<const bf16*>(t.k), static_cast<const bf16*>(t.v),
                static_cast<bf16*>(t.o));
}

}  // namespace falchion::ladder::on_gpu
