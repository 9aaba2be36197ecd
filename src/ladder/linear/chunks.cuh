// src/ladder/linear/chunks.cuh: what steps 06 and 07 share: 64 tokens in shared memory, S in the registers of a block,
// and the four products of a chunk on tensor cores (mma.sync m16n8k16).
#pragma once

#include <cuda_bf16.h>

#include <cute/tensor.hpp>

#include "ladder/launch.cuh"
#include "ladder/linear/sizes.hpp"

namespace falchion::ladder::linear::on_gpu {

using namespace cute;  // NOLINT: the letters of its layouts are what these files are about
using cute::Tensor;    // not falchion's
using bf16 = cute::bfloat16_t;

/// A chunk, where d_qk and d_v are filled up with zeros to the same d. A row in shared memory has 16 bytes more than it
/// needs, so that the rows, and also the columns, that a warp reads at a time lie in different banks.
template <int d>
struct Chunk {
  static constexpr int kD = d;
  static constexpr int kC = 64;
  static constexpr int kWarps = d / 16;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kPad = 8;
  static constexpr int kBlocks = 256 / d;  // per SM; a thread then has 128 registers
  using D = Int<kD>;
  using C = Int<kC>;
  using Row = Int<kD + kPad>;
  using RowOfP = Int<kC + kPad>;
  using Mma = TiledMMA<MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>, Layout<Shape<_4, Int<kWarps / 4>, _1>>>;

  struct Shared {
    alignas(16) bf16 Q[kC * Row{}], K[kC * Row{}], V[kC * Row{}], P[kC * RowOfP{}], S[kD * Row{}];
  };

  /// A matrix (rows, d) as it lies in memory, and its transpose on the same memory.
  template <class Rows>
  static __device__ auto matrix(bf16* x, Rows) {
    return make_tensor(make_smem_ptr(x), Layout<Shape<Rows, D>, Stride<Row, _1>>{});
  }
  template <class Rows>
  static __device__ auto transposed(bf16* x, Rows) {
    return make_tensor(make_smem_ptr(x), Layout<Shape<D, Rows>, Stride<_1, Row>>{});
  }
  static __device__ auto square(bf16* x) {
    return make_tensor(make_smem_ptr(x), Layout<Shape<C, C>, Stride<RowOfP, _1>>{});
  }

  /// load: copies tokens [row0, row0 + 64) of X, whose rows have x_d numbers, with cp.async, 16 bytes at a time. Tokens
  /// from `end` on and numbers from x_d on become 0. At least one token is before `end`. After wait_for_loads all
  /// threads can read them.
  static __device__ void load(bf16* to, Head<const bf16> X, int row0, int end, int x_d) {
    CUTE_NO_UNROLL
    for (int e = threadIdx.x; e < kC * kD / 8; e += kThreads) {
      const int row = e / (kD / 8), x = e % (kD / 8) * 8;
      const bool there = row0 + row < end && x < x_d;
      const auto* from = reinterpret_cast<const uint128_t*>(there ? &X[row0 + row][x] : X[row0]);
      auto* target = reinterpret_cast<uint128_t*>(&to[row * Row{} + x]);
      SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>::copy(*from, *target, there);
    }
  }
  static __device__ void wait_for_loads() {
    cp_async_fence();
    cp_async_wait<0>();
    __syncthreads();
  }

  /// Computes X += A B^T, with A (m, k) and B (n, k) in shared memory, 16 of k at a time.
  template <class A, class B, class Fragment>
  static __device__ void multiply(const A& a, const B& b, Fragment& x) {
    Mma mma;
    const auto thread = mma.get_slice(threadIdx.x);
    Tensor sA = thread.partition_A(a);
    Tensor sB = thread.partition_B(b);
    Tensor rA = make_tensor<bf16>(partition_shape_A(mma, make_shape(size<0>(a), _16{})));
    Tensor rB = make_tensor<bf16>(partition_shape_B(mma, make_shape(size<0>(b), _16{})));
    // The loop is not unrolled, because the operands of all steps would then be fetched at once, and there are not
    // enough registers for them.
    CUTE_NO_UNROLL
    for (int i = 0; i < size<2>(sA); ++i) {
      copy(sA(_, _, i), rA(_, _, 0));
      copy(sB(_, _, i), rB(_, _, 0));
      gemm(mma, rA(_, _, 0), rB(_, _, 0), x);
    }
  }

  /// Rounds registers from f32 to bf16 and writes them to shared memory, in pairs of columns.
  template <class Fragment, class Matrix>
  static __device__ void put(const Fragment& x, Matrix&& to) {
    Tensor rounded = make_fragment_like<bf16>(x);
    CUTE_UNROLL
    for (int i = 0; i < size(x) / 2; ++i)
      recast<__nv_bfloat162>(rounded)(i) = __float22bfloat162_rn(recast<const float2>(x)(i));
    copy(rounded, Mma{}.get_slice(threadIdx.x).partition_C(to));
  }

  static __device__ auto zero_state() {
    Tensor S = partition_fragment_C(Mma{}, Shape<D, D>{});  // (MMA, E, M) f32, registers
    clear(S);
    return S;
  }

  /// Computes S += K^T V.
  template <class State>
  static __device__ void add(Shared& shared, State& S) {
    multiply(transposed(shared.K, C{}), transposed(shared.V, C{}), S);
  }

  /// Computes O = tril(Q K^T) V + Q S of one chunk, with tokens from row0 on and S as it was before them.
  template <class State>
  static __device__ void attend(Shared& shared, const State& S, Head<bf16> gO, int row0, int end, int d_v) {
    const auto thread = Mma{}.get_slice(threadIdx.x);
    Tensor P = partition_fragment_C(Mma{}, Shape<C, C>{});
    Tensor at = thread.partition_C(make_identity_tensor(Shape<C, C>{}));  // the coordinates of P
    clear(P);
    multiply(matrix(shared.Q, C{}), matrix(shared.K, C{}), P);
    CUTE_UNROLL
    for (int e = 0; e < size(P); ++e)
      if (get<1>(at(e)) > get<0>(at(e))) P(e) = 0;
    put(P, square(shared.P));
    put(S, matrix(shared.S, D{}));
    __syncthreads();

    Tensor O = partition_fragment_C(Mma{}, Shape<C, D>{});
    Tensor of_O = thread.partition_C(make_identity_tensor(Shape<C, D>{}));
    clear(O);
    multiply(square(shared.P), transposed(shared.V, C{}), O);
    multiply(matrix(shared.Q, C{}), transposed(shared.S, D{}), O);
    CUTE_UNROLL
    for (int e = 0; e < size(O); e += 2) {  // columns come in pairs
      const int row = row0 + get<0>(of_O(e)), x = get<1>(of_O(e));
      if (row < end && x < d_v) *reinterpret_cast<__nv_bfloat162*>(&gO[row][x]) = __floats2bfloat162_rn(O(e), O(e + 1));
    }
  }

  /// Goes over tokens [begin, end) of one head, from the state before them.
  template <class State>
  static __device__ void walk(const Problem& p, int bh, int begin, int end, const bf16* q, const bf16* k, const bf16* v,
                              bf16* o, Shared& shared, State& S) {
    const Head<const bf16> Q = head_of(p, q, p.d_qk, bh), K = head_of(p, k, p.d_qk, bh), V = head_of(p, v, p.d_v, bh);
    const Head<bf16> O = head_of(p, o, p.d_v, bh);
    for (int row0 = begin; row0 < end; row0 += kC) {
      __syncthreads();  // no thread reads the chunk before any more
      load(shared.Q, Q, row0, end, p.d_qk);
      load(shared.K, K, row0, end, p.d_qk);
      load(shared.V, V, row0, end, p.d_v);
      wait_for_loads();
      attend(shared, S, O, row0, end, p.d_v);
      add(shared, S);
    }
  }
};

}  // namespace falchion::ladder::linear::on_gpu
