// src/ladder/attention/05_swizzle.cu: the kernel of step 04 with swizzled tiles and ldmatrix. The 16-byte pieces of a
// row change places by the number of the row, so that the 8 rows that a warp reads at once lie in different banks.
#include "ladder/attention/tensor_core.cuh"

namespace falchion::ladder::on_gpu {
namespace {

template <class Tile>
struct Shared {
  alignas(128) bf16 Q[Tile::kM * Tile::kD], K[Tile::kN * Tile::kD], V[Tile::kN * Tile::kD];
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
  Tensor sK =
      make_tensor(make_smem_ptr(shared.K), tile_to_shape(SwizzledAtom{}, Shape<N, D>{}));  // (N, D) bf16, swizzled
  Tensor sV =
      make_tensor(make_smem_ptr(shared.V), tile_to_shape(SwizzledAtom{}, Shape<N, D>{}));  // (N, D) bf16, swizzled
  Tensor sVt =
      make_tensor(sV.data(), composition(sV.layout(), Layout<Shape<D, N>, Stride<N, _1>>{}));  // (D, N), a view

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
  Tensor tsK = thread_K.partition_S(sK);   // (COPY, N, D) shared
  Tensor tsV = thread_V.partition_S(sVt);  // (COPY, D, N) shared
  Tensor trK = thread_K.retile_D(rK);      // (COPY, N, D) registers
  Tensor trV = thread_V.retile_D(rV);      // (COPY, D, N) registers

  load<Tile>(sQ, gQ, q0, p.s_q);
  __syncthreads();
  copy(copy_Q, thread_Q.partition_S(sQ), thread_Q.retile_D(rQ));
  for (int k0 = 0; k0 < end; k0 += Tile::kN) {
    __syncthreads();
    load<Tile>(sK, gK, k0, p.s_k);
    load<Tile>(sV, gV, k0, p.s_k);
    __syncthreads();

    clear(rS);
    CUTE_UNROLL
    for (int x = 0; x < size<2>(rQ); ++x) {  // S = Q K^T, 16 elements of the head at a time
      copy(copy_K, tsK(_, _, x), trK(_, _, x));
      gemm(mma, rQ(_, _, x), rK(_, _, x), rS);
    }
    if (k0 + Tile::kN > unmasked_end) apply_mask(rS, cS, mask, q0, k0);  // mask.keep
    softmax.update(S, O, p.scale * float(M_LOG2E));
    Tensor rP = to_operand(rS);
    CUTE_UNROLL
    for (int j = 0; j < size<2>(rP); ++j) {  // O += P V, 16 keys at a time
      copy(copy_V, tsV(_, _, j), trV(_, _, j));
      gemm(mma, rP(_, _, j), rV(_, _, j), rO);
    }
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

extern const Step swizzle;
const Step swizzle = {
    "swizzle",
    "Swizzled tiles, ldmatrix",
    "05_swizzle.cu",
    "The eight 16-byte pieces of a row change places by the row's number: piece c of row r lies at place c ^ r. So the "
    "pieces of one column lie in eight different sets of banks in eight rows. One ldmatrix then brings four 8 x 8 "
    "matrices, 512 bytes, in 4 cycles without a conflict, where step 04 needed 32. Its transposing form reads V as it "
    "lies. So the transposition of V is a view of the layout and costs nothing.",
    no_workspace,
    run};

}  // namespace falchion::ladder::on_gpu
