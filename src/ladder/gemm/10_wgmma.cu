// src/ladder/gemm/10_wgmma.cu: the loop of step 09 on the engines of Hopper. TMA copies whole tiles, and wgmma
// multiplies them from shared memory. It runs on sm_90 alone.
#include "ladder/gemm/one_tile.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

using Tile = HopperTile<128, 128, 2, 3>;
constexpr int kThreads = 128 * Tile::kWarpgroups;
constexpr int kBand = 16;

__global__ void __launch_bounds__(kThreads, 2)
    multiply(const __grid_constant__ Operands<bf16> x, const __grid_constant__ TensorMaps maps, Sizes sizes) {
  extern __shared__ __align__(1024) char memory[];
  auto& ring = *reinterpret_cast<Tile::Ring*>(memory);
  const TilePlace place = place_in_bands<kBand>(static_cast<int>(blockIdx.x), sizes.row_tiles, sizes.column_tiles);
  const int i0 = place.row * Tile::kRows, j0 = place.column * Tile::kColumns;
  TileProduct<Tile> product(cutlass::canonical_warp_group_idx());
  multiply_tile(maps, ring, i0, j0, 0, sizes.blocks, product);
  product.store(x, i0, j0);
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_maps<Tile>(p, t, stream, [&](const Operands<bf16>& x, const TensorMaps& maps, const Sizes& sizes) {
    return launch(multiply, dim3(static_cast<unsigned>(sizes.row_tiles) * sizes.column_tiles), dim3(kThreads),
                  sizeof(Tile::Ring), stream, x, maps, sizes);
  });
}

}  // namespace

extern const Step wgmma;
const Step wgmma = {
    "wgmma",
    "TMA, wgmma",
    "10_wgmma.cu",
    "On Hopper mma.sync does not reach the full rate of the tensor cores, whatever one does. wgmma, which does, is an "
    "instruction "
    "of "
    "a warpgroup, 128 threads. It multiplies 64 x 128 x 16 from operands that lie in shared memory, so there is no "
    "ldmatrix, and no registers hold operands. It runs on its own until somebody waits for it. TMA copies a tile when "
    "one "
    "thread names it, swizzled, and with zeros behind the end; an mbarrier counts its bytes. So 255 of 256 threads "
    "never "
    "compute an address. Two blocks share a multiprocessor, and one multiplies while the other stores C. Yet all "
    "threads "
    "still meet at a barrier in each round.",
    DType::bf16,
    whole_rows_bytes<bf16>,
    run,
    90};

}  // namespace falchion::ladder::gemm::on_gpu
