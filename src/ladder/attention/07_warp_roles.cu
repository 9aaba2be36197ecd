// src/ladder/attention/07_warp_roles.cu: the loop of step 06 on the engines of Hopper. TMA copies whole tiles, wgmma
// multiplies them from shared memory, and each warpgroup has a role: one produces tiles, two consume them. It runs on
// sm_90 alone.
#include "ladder/attention/hopper.cuh"

namespace falchion::ladder::on_gpu {
namespace {

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    attend(const __grid_constant__ Problem p, const __grid_constant__ TensorMaps maps, bf16* o) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(memory);
  const QueryTile<Tile> t(p);
  const int warpgroup = cutlass::canonical_warp_group_idx();
  init_barriers<Tile>(shared);

  if (warpgroup == Tile::kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<Tile::kProducerRegisters>();
    if (threadIdx.x % 128 == 0) produce(p, maps, t, shared);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Tile::kConsumerRegisters>();
    Consumer<Tile> own(p, t, shared, warpgroup);
    if (t.end > 0) own.wait_q();
    CUTE_NO_UNROLL
    for (int k0 = 0; k0 < t.end; k0 += Tile::kN) {
      own.wait_k();
      own.start_s();  // S = Q K^T
      own.template wait_s<0>();
      own.keep(k0);  // mask.keep
      own.update();  // softmax.update
      own.scale_rows();
      own.round();
      own.wait_v();
      own.start_o();  // O += P V
      own.template wait_o<0>();
    }
    own.store_o(o);
  }
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_head_dim(p, [&](auto d) {
    using Tile = HopperTile<d.value>;
    return launch_roles<Tile>(attend<Tile>, p, t, stream);
  });
}

}  // namespace

extern const Step warp_roles;
const Step warp_roles = {
    "warp-roles",
    "TMA, wgmma, a role for each warp",
    "07_warp_roles.cu",
    "An SM of Hopper has engines for what the threads of step 06 did by hand, and each engine needs the others. With "
    "TMA one thread names a box, and the engine brings 64 columns of 128 rows, swizzled, with zeros past the end. With "
    "wgmma an instruction of 128 threads multiplies 64 x 128 x 16, with operands that stay in shared memory. So there "
    "is no ldmatrix, and 64 rows share each fetch of K and V, where a warp had 16 or 32. A wgmma runs on its own until "
    "somebody waits for it. Each stage of the ring has two mbarriers, full and empty, so nobody stops at a barrier of "
    "the whole block. The producer needs only 24 registers, so that each thread of a consumer gets 240. Within a "
    "consumer S, softmax and O still follow one another. The tensor cores are busy during its softmax only if the "
    "other consumer happens to multiply at that time.",
    no_workspace,
    run,
    90};

}  // namespace falchion::ladder::on_gpu
