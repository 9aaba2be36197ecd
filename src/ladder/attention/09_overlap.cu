// src/ladder/attention/09_overlap.cu: the turns of step 08. Within a warpgroup, S of the next tile is now started
// before O += P V of this one, so that the softmax of the next tile runs while that product does. It runs on sm_90
// alone.
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
      own.wait_v();
      CUTE_NO_UNROLL
      for (int k0 = Tile::kN; k0 < t.end; k0 += Tile::kN) {
        own.wait_k();
        take_turn(warpgroup);
        own.start_s();  // S = Q K^T, of this tile
        own.start_o();  // O += P V, of the tile before
        pass_turn(warpgroup);
        own.template wait_s<1>();
        // The mask and the softmax run while O += P V and the products of the other consumer do.
        own.keep(k0);
        own.update();
        // This wait stands here and not later, because its branch keeps the compiler from waiting for O before the
        // exponentials.
        own.wait_v();
        own.template wait_o<0>();
        own.scale_rows();
        own.round();
      }
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

extern const Step overlap;
const Step overlap = {
    "overlap",
    "Softmax under the running product",
    "09_overlap.cu",
    "Within a consumer the softmax needs only S. Yet in step 08 it also waits for O += P V, which was started before "
    "S. It costs nothing to change the order of the two: S of the next tile is started first and O += P V of this one "
    "second, and the consumer waits until at most one product is still running. Then S is there, and its exponentials "
    "are computed under this O += P V as well as under the products of the other consumer. Only what touches O has to "
    "wait for it. So scale_rows comes after the softmax instead of within it, and P is converted once the old P has "
    "been read.",
    no_workspace,
    run,
    90};

}  // namespace falchion::ladder::on_gpu
