// src/ladder/gemm/11_roles.cu: blocks that stay, a role for each warpgroup, and clusters of two blocks. It runs on
// sm_90 alone.
#include "ladder/gemm/roles.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

using Tile = HopperTile<128, 256, kConsumers, 4>;  // both consumers share a tile

__global__ void __cluster_dims__(kCluster) __launch_bounds__(kRoleThreads, 1)
    multiply(const __grid_constant__ Operands<bf16> x, const __grid_constant__ TensorMaps maps,
             const __grid_constant__ Sizes sizes) {
  extern __shared__ __align__(1024) char memory[];
  auto& ring = *reinterpret_cast<Tile::Ring*>(memory);
  const int warpgroup = cutlass::canonical_warp_group_idx();
  init_barriers<Tile>(ring);
  if (warpgroup == kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x % 128 == 0) produce<Tile>(maps, ring, [&](const auto& f) { for_each_tile<Tile>(sizes, f); });
  } else {
    cutlass::arch::warpgroup_reg_alloc<kConsumerRegisters>();
    TileProduct<Tile> product(warpgroup);
    Tile::Position at;
    for_each_tile<Tile>(sizes, [&](const Work& work) {
      consume(product, ring, at, sizes.blocks, [] {});
      product.store(x, work.i0, work.j0);
    });
  }
  cluster_sync();  // no block ends while the other may still write to its memory
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return launch_roles<Tile>(multiply, sizeof(Tile::Ring), p, t, stream);
}

}  // namespace

extern const Step roles;
const Step roles = {
    "roles",
    "Roles, blocks that stay, clusters",
    "11_roles.cu",
    "One thread does nothing but name tiles, as far ahead as there are free stages, and two warpgroups do nothing but "
    "multiply. They tell each other by two mbarriers a stage, full and empty, so nobody stops at a barrier of the "
    "whole "
    "block, and the producer's registers go to the consumers. They have a tile of 128 x 256 together: for each byte "
    "that "
    "is loaded, and for each that wgmma reads from shared memory, it does a third more than 128 x 128. A block stays "
    "on "
    "its multiprocessor and takes tile after tile, and while the consumers store C the producer already loads for the "
    "next. Two blocks are a cluster, one tile below the other: each loads half of the tile of B that both need, and "
    "TMA "
    "writes it to both.",
    DType::bf16,
    whole_rows_bytes<bf16>,
    run,
    90};

}  // namespace falchion::ladder::gemm::on_gpu
