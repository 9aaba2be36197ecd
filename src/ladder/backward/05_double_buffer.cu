// src/ladder/backward/05_double_buffer.cu: the kernel of step 04 with two tiles of Q and dO in shared memory. While the
// tensor cores work on one, cp.async loads the next without passing through registers.
#include "ladder/backward/tensor_core.cuh"

namespace falchion::ladder::backward::on_gpu {
namespace {

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) differentiate_ahead(Problem p, Pointers g, Sums sums) {
  using D = typename Tile::D;
  using M = typename Tile::M;
  using N = typename Tile::N;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(memory);
  KeyTile<Tile> own(p, sums, shared);
  const Head<const bf16> gQ = head_of(p, g.q, p.s_q, own.bh), gdO = head_of(p, g.grad_o, p.s_q, own.bh);
  const auto load_rows = [&](int q0, int stage) {
    load_async<Tile>(Tile::template tile<M, D>(shared.Q[stage]), gQ, q0, p.s_q);
    load_async<Tile>(Tile::template tile<M, D>(shared.dO[stage]), gdO, q0, p.s_q);
  };
  int q0 = first_row(p, own.k0) / Tile::kM * Tile::kM;
  load_async<Tile>(Tile::template tile<N, D>(shared.K), head_of(p, g.k, p.s_k, own.bh), own.k0, p.s_k);
  load_async<Tile>(Tile::template tile<N, D>(shared.V), head_of(p, g.v, p.s_k, own.bh), own.k0, p.s_k);
  if (q0 < p.s_q) load_rows(q0, 0);
  cp_async_fence();
  for (int stage = 0; q0 < p.s_q; q0 += Tile::kM, stage ^= 1) {
    if (q0 + Tile::kM < p.s_q) load_rows(q0 + Tile::kM, stage ^ 1);  // the load of the next tile starts
    cp_async_fence();
    cp_async_wait<1>();  // this tile is here
    __syncthreads();
    own.visit(q0, stage);
    __syncthreads();  // before the tile after the next overwrites this one
  }
  own.store(g.grad_k, g.grad_v);
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_head_dim(p, [&](auto d) {
    using Tile = TensorCoreTile<d.value, Swizzled, 2>;
    return run_tiles<Tile>(differentiate_ahead<Tile>, p, t, stream);
  });
}

}  // namespace

extern const Step double_buffer;
const Step double_buffer = {
    "double-buffer",
    "cp.async, two tiles in flight",
    "05_double_buffer.cu",
    "In step 04 all threads of a block wait while Q and dO come from memory, and its registers fill a multiprocessor, "
    "so "
    "that no other block computes meanwhile. Now shared memory has room for two tiles of each. While the tensor cores "
    "work on one of them, cp.async copies the next one straight into the other, past the registers. What the walk "
    "still "
    "waits for is itself: the barriers of a visit keep all warps in step, so that the tensor cores rest while P and dS "
    "are computed, and all warps add their dQ at the same time.",
    sums_bytes,
    run};

}  // namespace falchion::ladder::backward::on_gpu
