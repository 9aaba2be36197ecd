// src/ladder/gemm/branch_ping_pong.cu: a branch of step 12: each consumer has tiles of its own, and while one stores,
// the other multiplies. It runs on sm_90 alone.
#include "base/host_device.hpp"
#include "ladder/gemm/store_tile.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

using Tile = HopperTile<128, 128, 1, 5>;

struct Shared {
  Tile::Ring ring;
  Outgoing<4> out[kConsumers];
};

/// A consumer waits for its turn at a named barrier of 256 threads: its own 128, and the 128 of the other, who arrive
/// when they pass the turn, and go on.
FALCHION_DEVICE void take_turn(int warpgroup) { sm90::sync_threads<256>(3 + warpgroup); }
FALCHION_DEVICE void pass_turn(int warpgroup) { sm90::arrive_threads<256>(4 - warpgroup); }

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
    TileProduct<Tile> product(0);
    int number = 0;                            // of this block's tile
    if (warpgroup == 1) pass_turn(warpgroup);  // the first turn is warpgroup 0's
    for_each_tile<Tile>(sizes, [&](const Work& work) {
      Tile::Position at(number * sizes.blocks);  // the stages before are those of the tiles before
      if (number++ % kConsumers != warpgroup) return;
      take_turn(warpgroup);
      consume(product, shared.ring, at, sizes.blocks, [&] { pass_turn(warpgroup); });
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

extern const Step ping_pong;
const Step ping_pong = {
    "ping-pong",
    "Consumers in turns, C by TMA",
    "branch_ping_pong.cu",
    "In step 11 the tensor cores rest while C is stored. Now each consumer has a tile of 128 x 128 of its own, and "
    "they "
    "take turns: when one has started its last product, the other may start its first, and multiplies while the one "
    "stores. The turn also keeps the ring right, for a wait can tell a stage's round from the round before it, but not "
    "from an earlier one. To store, a warpgroup rounds its numbers and writes them to shared memory by stmatrix, "
    "swizzled as TMA wants them, and one thread tells TMA to write them to C, in whole lines, where each lane of step "
    "11 "
    "wrote 4 bytes at a time.",
    DType::bf16,
    whole_rows_bytes<bf16>,
    run,
    90};

}  // namespace falchion::ladder::gemm::on_gpu
