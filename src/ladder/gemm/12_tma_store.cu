// src/ladder/gemm/12_tma_store.cu: the roles of step 11, and C leaves by TMA, so that the consumers are free for the
// next tile as soon as their sums lie in shared memory. It runs on sm_90 alone.
#include "ladder/gemm/store_tile.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

using Tile = HopperTile<128, 256, kConsumers, 4>;

struct Shared {
  Tile::Ring ring;
  Outgoing<2> out[kConsumers];  // half of a consumer's 64 x 256
};

__global__ void __cluster_dims__(kCluster) __launch_bounds__(kRoleThreads, 1)
    multiply(const __grid_constant__ Operands<bf16>, const __grid_constant__ TensorMaps maps,
             const __grid_constant__ Sizes sizes) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const int warpgroup = cutlass::canonical_warp_group_idx();
  init_barriers<Tile>(shared.ring);
  if (warpgroup == kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x % 128 == 0) produce<Tile>(maps, shared.ring, [&](const auto& f) { for_each_tile<Tile>(sizes, f); });
  } else {
    cutlass::arch::warpgroup_reg_alloc<kConsumerRegisters>();
    TileProduct<Tile> product(warpgroup);
    Tile::Position at;
    for_each_tile<Tile>(sizes, [&](const Work& work) {
      consume(product, shared.ring, at, sizes.blocks, [] {});
      store_tile(product, shared.out[warpgroup], maps.c, work.i0, work.j0, 1 + warpgroup);
    });
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
  }
  cluster_sync();
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return launch_roles<Tile>(multiply, sizeof(Shared), p, t, stream);
}

}  // namespace

extern const Step tma_store;
const Step tma_store = {
    "tma-store",
    "C by TMA",
    "12_tma_store.cu",
    "In step 11 the tensor cores rest while C is stored: each lane writes 4 bytes at a time, 128 times, and only then "
    "begins the next tile. Now a warpgroup rounds its numbers and writes them to shared memory by stmatrix, swizzled "
    "as "
    "TMA wants them. Then one thread tells TMA to write them to C, in whole lines, and the warpgroup goes on with the "
    "next tile, for which the producer has already loaded. There is room for half of a tile, so this is done twice. "
    "Room for all of it would cost a stage, and three stages with that were as fast as four without.",
    DType::bf16,
    whole_rows_bytes<bf16>,
    run,
    90};

}  // namespace falchion::ladder::gemm::on_gpu
