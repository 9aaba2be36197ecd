// src/ladder/attention/06_double_buffer.cu: the kernel of step 05 with two K/V tiles in shared memory. While the tensor
// cores work on one, cp.async loads the next without passing through registers.
#include "ladder/attention/tensor_core.cuh"

namespace falchion::ladder::on_gpu {
namespace {

inline constexpr int kStages = 2;

template <class Tile>
struct Shared {
  alignas(128) bf16 Q[Tile::kM * Tile::kD], K[kStages * Tile::kN * Tile::kD], V[kStages * Tile::kN * Tile::kD];
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    attend(Problem p, const bf16* q, const bf16* k, const bf16* v, bf16* o) {
  using D = typename Tile::D;
  using M = typename Tile::M;
  using N = typename Tile::N;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<Shared<Tile>*>(memory);
  Tensor sQ =
      make_tensor(make_smem_ptr(shared.Q), tile_to_shape(SwizzledAtom{}, Shape<M, D>{}));  // (M, D) bf16, swizzled
  const auto stages = tile_to_shape(SwizzledAtom{}, Shape<N, D, Int<kStages>>{});
  Tensor sK = make_tensor(make_smem_ptr(shared.K), stages);  // (N, D, stages) bf16, swizzled
  Tensor sV = make_tensor(make_smem_ptr(shared.V), stages);  // (N, D, stages) bf16, swizzled
  Tensor sVt =
      make_tensor(sV.data(), composition(stages, Layout<Shape<D, N, Int<kStages>>, Stride<N, _1, Int<N{} * D{}>>>{}));

  const int q0 = blockIdx.x * Tile::kM, bh = blockIdx.y;
  const Head<const bf16> gQ = head_of(p, q, p.s_q, bh), gK = head_of(p, k, p.s_k, bh), gV = head_of(p, v, p.s_k, bh);
  const BandMask mask = p.mask();
  const int q1 = min(q0 + Tile::kM, p.s_q);
  const int end = static_cast<int>(mask.visible(q0, q1).end);
  const int unmasked_end = static_cast<int>(mask.unmasked(q0, q1).end);

  typename Tile::Mma mma;
  const auto thread = mma.get_slice(threadIdx.x);
  Tensor rQ = make_tensor<bf16>(partition_shape_A(mma, Shape<M, D>{}));  // (MMA, M, D) bf16, registers
  Tensor rK = make_tensor<bf16>(partition_shape_B(mma, Shape<N, D>{}));  // (MMA, N, D) bf16, registers
  Tensor rV = make_tensor<bf16>(partition_shape_B(mma, Shape<D, N>{}));  // (MMA, D, N) bf16, registers
  Tensor rS = partition_fragment_C(mma, Shape<M, N>{});                  // (MMA, M, N) f32, registers
  Tensor rO = partition_fragment_C(mma, Shape<M, D>{});                  // (MMA, M, D) f32, registers
  Tensor S = rows_and_columns(rS);                                       // the same registers as (rows, columns)
  Tensor O = rows_and_columns(rO);
  Tensor cS = thread.partition_C(make_identity_tensor(Shape<M, N>{}));  // the coordinates of S in its tile
  Tensor cO = thread.partition_C(make_identity_tensor(Shape<M, D>{}));
  OnlineSoftmax<decltype(size<0>(S))::value> softmax;
  clear(rO);

  // ldmatrix reads four 8 x 8 matrices at once, each row of a matrix from one address. For V it transposes them.
  const auto copy_Q = make_tiled_copy_A(Copy_Atom<SM75_U32x4_LDSM_N, bf16>{}, mma);
  const auto copy_K = make_tiled_copy_B(Copy_Atom<SM75_U32x4_LDSM_N, bf16>{}, mma);
  const auto copy_V = make_tiled_copy_B(Copy_Atom<SM75_U16x8_LDSM_T, bf16>{}, mma);
  const auto thread_Q = copy_Q.get_slice(threadIdx.x);
  const auto thread_K = copy_K.get_slice(threadIdx.x);
  const auto thread_V = copy_V.get_slice(threadIdx.x);
  Tensor tsK = thread_K.partition_S(sK);   // (COPY, N, D, stages) shared
  Tensor tsV = thread_V.partition_S(sVt);  // (COPY, D, N, stages) shared
  Tensor trK = thread_K.retile_D(rK);      // (COPY, N, D) registers
  Tensor trV = thread_V.retile_D(rV);      // (COPY, D, N) registers

  load_async<Tile>(sQ, gQ, q0, p.s_q);
  cp_async_fence();
  if (end > 0) {
    load_async<Tile>(sK(_, _, 0), gK, 0, p.s_k);
    load_async<Tile>(sV(_, _, 0), gV, 0, p.s_k);
  }
  cp_async_fence();
  cp_async_wait<1>();  // waits for all groups but the last one: Q is here
  __syncthreads();
  copy(copy_Q, thread_Q.partition_S(sQ), thread_Q.retile_D(rQ));
  for (int k0 = 0, stage = 0; k0 < end; k0 += Tile::kN, stage ^= 1) {
    if (k0 + Tile::kN < end) {  // the load of the next tile starts
      load_async<Tile>(sK(_, _, stage ^ 1), gK, k0 + Tile::kN, p.s_k);
      load_async<Tile>(sV(_, _, stage ^ 1), gV, k0 + Tile::kN, p.s_k);
    }
    cp_async_fence();
    cp_async_wait<1>();  // this tile is here
    __syncthreads();

    clear(rS);
    CUTE_UNROLL
    for (int x = 0; x < size<2>(rQ); ++x) {  // S = Q K^T, 16 elements of the head at a time
      copy(copy_K, tsK(_, _, x, stage), trK(_, _, x));
      gemm(mma, rQ(_, _, x), rK(_, _, x), rS);
    }
    if (k0 + Tile::kN > unmasked_end) apply_mask(rS, cS, mask, q0, k0);  // mask.keep
    softmax.update(S, O, p.scale * float(M_LOG2E));
    Tensor rP = to_operand(rS);
    CUTE_UNROLL
    for (int j = 0; j < size<2>(rP); ++j) {  // O += P V, 16 keys at a time
      copy(copy_V, tsV(_, _, j, stage), trV(_, _, j));
      gemm(mma, rP(_, _, j), rV(_, _, j), rO);
    }
    __syncthreads();  // before the tile after the next overwrites this one
  }
  store(O, rows_and_columns(cO), softmax, head_of(p, o, p.s_q, bh), q0, p.s_q);
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_head_dim(p, [&](auto d) {
    using Tile = TensorCoreTile<d.value>;
    return launch_tiles<Tile>(attend<Tile>, sizeof(Shared<Tile>), p, t, stream);
  });
}

}  // namespace

extern const Step double_buffer;
const Step double_buffer = {
    "double-buffer",
    "cp.async, two tiles in flight",
    "06_double_buffer.cu",
    "In step 05 all threads of a block wait while a tile comes from memory, and while they compute, no tile is on its "
    "way. Only the other block on the multiprocessor fills the gap. Now shared memory has room for two K/V tiles. "
    "While the tensor cores work on one of them, cp.async copies the next one straight into the other. The copy does "
    "not pass through registers, and no thread waits for it. The barrier waits for a copy that was started a whole "
    "tile ago.",
    no_workspace,
    run};

}  // namespace falchion::ladder::on_gpu
