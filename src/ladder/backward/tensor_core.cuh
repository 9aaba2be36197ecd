// src/ladder/backward/tensor_core.cuh: what steps 03 to 05 share: the tile, the five products of one visit, and the
// store of dK and dV. These steps differ only in where a number lies in shared memory, and in how it gets there and out
// of it.
#pragma once

#include "ladder/attention/tensor_core.cuh"
#include "ladder/backward/around.cuh"

namespace falchion::ladder::backward::on_gpu {

using namespace ladder::on_gpu;  // rows_and_columns, load
using ladder::on_gpu::bf16;

/// Swizzled tiles, whose operands ldmatrix fetches: four 8 x 8 matrices at once, transposed or not.
struct Swizzled {
  using Atom = SwizzledAtom;
  using Straight = SM75_U32x4_LDSM_N;
  using Across = SM75_U16x8_LDSM_T;
};

/// A block of eight warps has 128 keys, and visits 64 query rows at a time at d 64, and 32 at d 128, where dK and dV
/// take half of all registers. Ways says how tiles lie in shared memory and how operands come out of it: Ways::Atom, a
/// layout of 8 rows x 64 columns; Ways::Straight, a copy of operands whose sum runs along the rows of the tile;
/// Ways::Across, of those whose sum runs across them.
template <int d, class Ways_, int stages = 1>
struct TensorCoreTile {
  using Ways = Ways_;
  static constexpr int kD = d, kM = 4096 / kD, kN = 128, kStages = stages, kThreads = 256;
  using D = Int<kD>;
  using M = Int<kM>;
  using N = Int<kN>;
  // The warps share a product whose rows are queries as 2 x 4, and one whose rows are keys as 4 x 2.
  using Atom = MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>;
  using MmaRows = TiledMMA<Atom, Layout<Shape<_2, _4, _1>>, cute::Tile<_32, _64, _16>>;  // (M, N), (M, D)
  using MmaKeys = TiledMMA<Atom, Layout<Shape<_4, _2, _1>>, cute::Tile<_64, _32, _16>>;  // (N, D)

  struct Shared {
    alignas(128) bf16 K[kN * kD], V[kN * kD], Q[kStages][kM * kD], dO[kStages][kM * kD], P[kM * kN], dS[kM * kN];
  };

  /// A tile of Rows x Columns, which are static integers.
  template <class Rows, class Columns>
  static __device__ auto tile(bf16* memory) {
    return make_tensor(make_smem_ptr(memory), tile_to_shape(typename Ways::Atom{}, Shape<Rows, Columns>{}));
  }
  /// The same memory, read as (columns, rows).
  template <class Rows, class Columns>
  static __device__ auto transposed(bf16* memory) {
    const auto straight = tile<Rows, Columns>(memory);
    return make_tensor(straight.data(),
                       composition(straight.layout(), Layout<Shape<Columns, Rows>, Stride<Rows, _1>>{}));
  }
};

/// C += A B^T with A (m, k) and B (n, k) in shared memory, 16 elements of k at a time.
template <class CopyA, class CopyB, class Mma, class A, class B, class C>
__device__ void multiply(Mma mma, const A& sA, const B& sB, C& rC) {
  const auto thread = mma.get_slice(threadIdx.x);
  const auto copy_A = make_tiled_copy_A(Copy_Atom<CopyA, bf16>{}, mma);
  const auto copy_B = make_tiled_copy_B(Copy_Atom<CopyB, bf16>{}, mma);
  const auto thread_A = copy_A.get_slice(threadIdx.x);
  const auto thread_B = copy_B.get_slice(threadIdx.x);
  Tensor rA = thread.partition_fragment_A(sA);  // (MMA, m, k) registers
  Tensor rB = thread.partition_fragment_B(sB);  // (MMA, n, k) registers
  Tensor tsA = thread_A.partition_S(sA);        // (COPY, m, k) shared
  Tensor tsB = thread_B.partition_S(sB);        // (COPY, n, k) shared
  Tensor trA = thread_A.retile_D(rA);           // (COPY, m, k) registers
  Tensor trB = thread_B.retile_D(rB);           // (COPY, n, k) registers
  CUTE_UNROLL
  for (int k = 0; k < size<2>(rA); ++k) {
    copy(copy_A, tsA(_, _, k), trA(_, _, k));
    copy(copy_B, tsB(_, _, k), trB(_, _, k));
    gemm(mma, rA(_, _, k), rB(_, _, k), rC);
  }
}

/// The key tile of a block of threads, with its dK and dV in registers.
template <class Tile>
class KeyTile {
  using D = typename Tile::D;
  using M = typename Tile::M;
  using N = typename Tile::N;
  using MmaRows = typename Tile::MmaRows;
  using MmaKeys = typename Tile::MmaKeys;
  using Straight = typename Tile::Ways::Straight;
  using Across = typename Tile::Ways::Across;

 public:
  const int k0, bh;

  __device__ KeyTile(const Problem& p, const Sums& sums, typename Tile::Shared& shared)
      : k0(blockIdx.x * Tile::kN),
        bh(blockIdx.y),
        p(p),
        shared(shared),
        lse(sums.lse + std::int64_t{bh} * padded_rows(p)),
        delta(sums.delta + std::int64_t{bh} * padded_rows(p)),
        gdQ(head_of(p, sums.grad_q, p.s_q, bh)) {
    clear(rdK);
    clear(rdV);
  }

  /// Visits the query rows from q0 on, whose Q and dO are in this stage.
  __device__ void visit(int q0, int stage) {
    const MmaRows of_rows;
    const MmaKeys of_keys;
    const auto Q = Tile::template tile<M, D>(shared.Q[stage]), dO = Tile::template tile<M, D>(shared.dO[stage]);
    const auto K = Tile::template tile<N, D>(shared.K), V = Tile::template tile<N, D>(shared.V);
    const auto Qt = Tile::template transposed<M, D>(shared.Q[stage]);    // (D, M)
    const auto dOt = Tile::template transposed<M, D>(shared.dO[stage]);  // (D, M)
    const auto Kt = Tile::template transposed<N, D>(shared.K);           // (D, N)
    const auto dS = Tile::template tile<M, N>(shared.dS);
    const auto Pt = Tile::template transposed<M, N>(shared.P), dSt = Tile::template transposed<M, N>(shared.dS);

    Tensor rPairs = partition_fragment_C(of_rows, Shape<M, N>{});  // (MMA, M, N) f32, registers
    clear(rPairs);
    multiply<Straight, Straight>(of_rows, Q, K, rPairs);  // S = Q K^T
    put_p(q0, rPairs);                                    // mask.keep, P
    clear(rPairs);
    multiply<Straight, Straight>(of_rows, dO, V, rPairs);  // dP = dO V^T
    put_ds(q0, rPairs);                                    // dS
    __syncthreads();
    multiply<Across, Across>(of_keys, Pt, dOt, rdV);            // dV += P^T dO
    multiply<Across, Across>(of_keys, dSt, Qt, rdK);            // dK += dS^T Q
    Tensor rdQ = partition_fragment_C(of_rows, Shape<M, D>{});  // (MMA, M, D) f32, registers
    clear(rdQ);
    multiply<Straight, Across>(of_rows, dS, Kt, rdQ);  // dQ = dS K
    add_to_sums(q0, rdQ);
  }

  /// Stores dK and dV in bf16, only keys below s_k.
  __device__ void store(bf16* grad_k, bf16* grad_v) const {
    store(rdK, p.scale, head_of(p, grad_k, p.s_k, bh));
    store(rdV, 1, head_of(p, grad_v, p.s_k, bh));
  }

 private:
  using Keys = decltype(partition_fragment_C(MmaKeys{}, Shape<N, D>{}));

  /// Two neighbouring numbers, of which this is the first.
  __device__ static __nv_bfloat162& pair(bf16& first) { return reinterpret_cast<__nv_bfloat162&>(first); }
  /// The coordinates of each element of a result in its tile, as (rows, columns) of this thread.
  template <class Mma, class Shape>
  __device__ static auto coordinates(Mma mma, Shape shape) {
    const auto c = mma.get_slice(threadIdx.x).partition_C(make_identity_tensor(shape));
    return rows_and_columns(c);
  }

  /// P = exp(scale S - lse), in bf16 in shared memory.
  template <class Fragment>
  __device__ void put_p(int q0, const Fragment& rS) {
    const auto at = coordinates(MmaRows{}, Shape<M, N>{});
    const auto sP = Tile::template tile<M, N>(shared.P);
    const auto S = rows_and_columns(rS);
    const float unit = p.scale * float(M_LOG2E);
    CUTE_UNROLL
    for (int r = 0; r < size<0>(S); ++r) {
      const int row = get<0>(at(r, 0));
      const int past = past_key(p, q0 + row) - k0;  // mask.keep: it sees the columns before
      const float of_row = lse[q0 + row];
      CUTE_UNROLL
      for (int c = 0; c < size<1>(S); c += 2) {  // columns come in pairs
        const int column = get<1>(at(r, c));
        const float x = column < past ? probability(S(r, c), unit, of_row) : 0;
        const float y = column + 1 < past ? probability(S(r, c + 1), unit, of_row) : 0;
        pair(sP(row, column)) = __floats2bfloat162_rn(x, y);
      }
    }
  }
  /// dS = P (dP - D), in bf16 in shared memory. Each thread reads back the rounded P that it has written, since there
  /// are no registers for both.
  template <class Fragment>
  __device__ void put_ds(int q0, const Fragment& rdP) {
    const auto at = coordinates(MmaRows{}, Shape<M, N>{});
    const auto sP = Tile::template tile<M, N>(shared.P), sdS = Tile::template tile<M, N>(shared.dS);
    const auto dP = rows_and_columns(rdP);
    CUTE_UNROLL
    for (int r = 0; r < size<0>(dP); ++r) {
      const int row = get<0>(at(r, 0));
      const float D_of_row = delta[q0 + row];
      CUTE_UNROLL
      for (int c = 0; c < size<1>(dP); c += 2) {
        const int column = get<1>(at(r, c));
        const float2 P = __bfloat1622float2(pair(sP(row, column)));
        pair(sdS(row, column)) = __floats2bfloat162_rn(P.x * (dP(r, c) - D_of_row), P.y * (dP(r, c + 1) - D_of_row));
      }
    }
  }

  template <class Fragment>
  __device__ void add_to_sums(int q0, const Fragment& rdQ) const {
    const auto at = coordinates(MmaRows{}, Shape<M, D>{});
    const auto dQ = rows_and_columns(rdQ);
    CUTE_UNROLL
    for (int r = 0; r < size<0>(dQ); ++r) {
      const int i = q0 + get<0>(at(r, 0));
      if (i >= p.s_q) continue;
      CUTE_UNROLL
      for (int c = 0; c < size<1>(dQ); ++c) atomicAdd(&gdQ[i][get<1>(at(r, c))], dQ(r, c));
    }
  }

  __device__ void store(const Keys& gradient, float scale, Head<bf16> to) const {
    const auto at = coordinates(MmaKeys{}, Shape<N, D>{});
    const auto x = rows_and_columns(gradient);
    CUTE_UNROLL
    for (int r = 0; r < size<0>(x); ++r) {
      const int j = k0 + get<0>(at(r, 0));
      if (j >= p.s_k) continue;
      CUTE_UNROLL
      for (int c = 0; c < size<1>(x); c += 2)
        pair(to[j][get<1>(at(r, c))]) = __floats2bfloat162_rn(scale * x(r, c), scale * x(r, c + 1));
    }
  }

  Keys rdK, rdV;  // (MMA, N, D) f32
  const Problem& p;
  typename Tile::Shared& shared;
  const float *lse, *delta;
  const Head<float> gdQ;
};

/// The arguments of a kernel of these steps.
struct Pointers {
  const bf16 *q, *k, *v, *grad_o;
  bf16 *grad_k, *grad_v;

  explicit Pointers(const Tensors& t)
      : q(static_cast<const bf16*>(t.q)),
        k(static_cast<const bf16*>(t.k)),
        v(static_cast<const bf16*>(t.v)),
        grad_o(static_cast<const bf16*>(t.grad_o)),
        grad_k(static_cast<bf16*>(t.grad_k)),
        grad_v(static_cast<bf16*>(t.grad_v)) {}
};

/// The walk of steps 03 and 04: a tile of query rows is loaded, and then it is worked on.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) differentiate(Problem p, Pointers g, Sums sums) {
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(memory);
  KeyTile<Tile> own(p, sums, shared);
  const Head<const bf16> gQ = head_of(p, g.q, p.s_q, own.bh), gdO = head_of(p, g.grad_o, p.s_q, own.bh);
  using D = typename Tile::D;
  using M = typename Tile::M;
  using N = typename Tile::N;
  load<Tile>(Tile::template tile<N, D>(shared.K), head_of(p, g.k, p.s_k, own.bh), own.k0, p.s_k);
  load<Tile>(Tile::template tile<N, D>(shared.V), head_of(p, g.v, p.s_k, own.bh), own.k0, p.s_k);
  for (int q0 = first_row(p, own.k0) / Tile::kM * Tile::kM; q0 < p.s_q; q0 += Tile::kM) {
    __syncthreads();
    load<Tile>(Tile::template tile<M, D>(shared.Q[0]), gQ, q0, p.s_q);
    load<Tile>(Tile::template tile<M, D>(shared.dO[0]), gdO, q0, p.s_q);
    __syncthreads();
    own.visit(q0, 0);
  }
  own.store(g.grad_k, g.grad_v);
}

using TileKernel = void (*)(Problem, Pointers, Sums);

template <class Tile>
Status run_tiles(TileKernel kernel, const Problem& p, const Tensors& t, Stream stream) {
  return run_around(p, t, stream, [&](const Sums& sums) {
    return launch(kernel, dim3(divide_up(p.s_k, Tile::kN), p.b * p.h), dim3(Tile::kThreads),
                  sizeof(typename Tile::Shared), stream, p, Pointers(t), sums);
  });
}

}  // namespace falchion::ladder::backward::on_gpu
