// src/ladder/backward/03_tensor_cores.cu: the walk of step 02, with all five products on tensor cores (mma.sync
// m16n8k16). Tiles lie in shared memory row after row, and each thread reads its operands with ordinary loads.
#include "ladder/backward/tensor_core.cuh"

namespace falchion::ladder::backward::on_gpu {
namespace {

/// Neighbouring numbers of a row are loaded in pairs. Those of a column lie a row apart and are loaded one by one.
struct OrdinaryLoads {
  using Atom = Layout<Shape<_8, _64>, Stride<_64, _1>>;
  using Straight = UniversalCopy<std::uint32_t>;
  using Across = UniversalCopy<std::uint16_t>;
};

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_head_dim(p, [&](auto d) {
    using Tile = TensorCoreTile<d.value, OrdinaryLoads>;
    return run_tiles<Tile>(differentiate<Tile>, p, t, stream);
  });
}

}  // namespace

extern const Step tensor_cores;
const Step tensor_cores = {
    "tensor-cores",
    "All five products on tensor cores",
    "03_tensor_cores.cu",
    "The five products are made of mma.sync m16n8k16, 2048 multiply-adds by one instruction of a warp. P and dS go "
    "through shared memory in bf16, since no single order of the registers would do: S and dP, whose rows are query "
    "rows, are shared by the warps in one way, and dV and dK, whose rows are keys, in another. Three of the five "
    "products want operands across the rows of a tile: P^T and dS^T, and dO, Q and K as the second factor. These are "
    "picked 2 bytes at a time, and the 8 rows that a warp reads at once lie in the same 4 banks. So shared memory is "
    "the bottleneck, as it was in step 04 of the forward ladder.",
    sums_bytes,
    run};

}  // namespace falchion::ladder::backward::on_gpu
