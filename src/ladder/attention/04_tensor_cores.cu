// src/ladder/attention/04_tensor_cores.cu: the loops of step 03, with both products on tensor cores (mma.sync
// m16n8k16). Tiles lie in shared memory as they do in global memory, row after row, and each thread reads its operands
// with ordinary loads.
#include "ladder/attention/tensor_core.cuh"

namespace falchion::ladder::on_gpu {
namespace {

template <class Tile>
struct Shared {
  alignas(16) bf16 Q[Tile::kM * Tile::kD], K[Tile::kN * Tile::kD], V[Tile::kN * Tile::kD];
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    attend(Problem p, const bf16* q, const bf16* k, const bf16* v, bf16* o) {
  using D = typename Tile::D;
  using M = typename Tile::M;
  using N = typename Tile::N;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<Shared<Tile>*>(memory);
  Tensor sQ = make_tensor(make_smem_ptr(shared.Q), Layout<Shape<M, D>, Stride<D, _1>>{});   // (M, D) bf16, row-major
  Tensor sK = make_tensor(make_smem_ptr(shared.K), Layout<Shape<N, D>, Stride<D, _1>>{});   // (N, D) bf16, row-major
  Tensor sV = make_tensor(make_smem_ptr(shared.V), Layout<Shape<N, D>, Stride<D, _1>>{});   // (N, D) bf16, row-major
  Tensor sVt = make_tensor(make_smem_ptr(shared.V), Layout<Shape<D, N>, Stride<_1, D>>{});  // (D, N), the same memory

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

  load<Tile>(sQ, gQ, q0, p.s_q);
  __syncthreads();
  copy(thread.partition_A(sQ), rQ);
  for (int k0 = 0; k0 < end; k0 += Tile::kN) {
    __syncthreads();
    load<Tile>(sK, gK, k0, p.s_k);
    load<Tile>(sV, gV, k0, p.s_k);
    __syncthreads();

    clear(rS);
    CUTE_UNROLL
    for (int x = 0; x < size<2>(rQ); ++x) {  // S = Q K^T, 16 elements of the head at a time
      copy(thread.partition_B(sK)(_, _, x), rK(_, _, x));
      gemm(mma, rQ(_, _, x), rK(_, _, x), rS);
    }
    if (k0 + Tile::kN > unmasked_end) apply_mask(rS, cS, mask, q0, k0);  // mask.keep
    softmax.update(S, O, p.scale * float(M_LOG2E));
    Tensor rP = to_operand(rS);
    CUTE_UNROLL
    for (int j = 0; j < size<2>(rP); ++j) {  // O += P V, 16 keys at a time
      copy(thread.partition_B(sVt)(_, _, j), rV(_, _, j));
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

extern const Step tensor_cores;
const Step tensor_cores = {
    "tensor-cores",
    "Both products on tensor cores",
    "04_tensor_cores.cu",
    "One instruction of a warp, mma.sync m16n8k16, multiplies 16 x 16 by 16 x 8, which is 2048 multiply-adds instead "
    "of 32. S stays in registers in the very order in which P is wanted as an operand. So P no longer passes through "
    "shared memory, and the inputs stay bf16 there. Now shared memory is the bottleneck. A row has 128 bytes and "
    "covers all 32 banks, so the 8 rows that a warp reads at once collide in the same 4 banks. V is wanted transposed "
    "and is picked 2 bytes at a time. So 512 bytes of operands take 32 cycles, both of K (4 loads of 8 cycles) and of "
    "V (8 loads of 4).",
    no_workspace,
    run};

}  // namespace falchion::ladder::on_gpu
