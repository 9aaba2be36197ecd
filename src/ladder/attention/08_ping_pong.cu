// src/ladder/attention/08_ping_pong.cu: the roles of step 07, where the two consumers take turns: while one multiplies,
// the other does its softmax. It runs on sm_90 alone.
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
    if (t.end > 0) {
      if (warpgroup == 1) pass_turn(warpgroup);  // the first turn is warpgroup 0's
      own.wait_q();
      own.wait_k();
      take_turn(warpgroup);
      own.start_s();  // S = Q K^T, of the first tile
      pass_turn(warpgroup);
      own.template wait_s<0>();
      own.keep(0);   // mask.keep
      own.update();  // softmax.update
      own.round();
      CUTE_NO_UNROLL
      for (int k0 = Tile::kN; k0 < t.end; k0 += Tile::kN) {
        own.wait_k();
        own.wait_v();
        take_turn(warpgroup);
        own.start_o();  // O += P V, of the tile before
        own.start_s();  // S = Q K^T, of this one
        pass_turn(warpgroup);
        own.template wait_o<1>();
        own.template wait_s<0>();
        own.keep(k0);  // from here to the end of the loop the other consumer multiplies
        own.update();
        own.scale_rows();
        own.round();
      }
      own.wait_v();
      own.start_o();
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

extern const Step ping_pong;
const Step ping_pong = {
    "ping-pong",
    "Two consumers take turns",
    "08_ping_pong.cu",
    "The two consumers of step 07 begin together, and then both want the same unit at the same time. Both multiply, "
    "each at half the speed, and then both compute exponentials while the tensor cores rest. Now the products of a "
    "consumer stand together, O += P V of one tile and S of the next, and they may only be started in turns. The turns "
    "are two named barriers: each consumer waits at its own and arrives at the other's. While one consumer has the "
    "tensor cores, the other does its softmax. For a tile at d 128 the products take 1024 cycles and the exponentials "
    "at least 512, so the exponentials now fit under the other consumer's products. At d 64 both take 512, and with "
    "maxima, sums and conversions the softmax is the longer one.",
    no_workspace,
    run,
    90};

}  // namespace falchion::ladder::on_gpu
