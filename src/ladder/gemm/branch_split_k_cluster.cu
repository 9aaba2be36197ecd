// src/ladder/gemm/branch_split_k_cluster.cu: a branch of step 10 for few rows and a B that has to come from memory: the
// blocks of a cluster have the same tile of C, and each has a part of k. Their sums meet in shared memory, across
// multiprocessors. It pays at 64 x 4096 x 14336, and costs two barriers of the cluster. It runs on sm_90 alone.
#include <cooperative_groups.h>

#include <cute/arch/cluster_sm90.hpp>

#include "ladder/gemm/one_tile.cuh"
#include "ladder/gemm/parts.hpp"

namespace falchion::ladder::gemm::on_gpu {
namespace {

using Tile = HopperTile<64, 128, 1, 4>;
constexpr int kParts = 4;                                // the blocks of a cluster
constexpr int kOwn = TileProduct<Tile>::kSums / kParts;  // of a thread's sums, which its block adds up
constexpr int kOwnColumns = Tile::kColumns / kParts;     // in so many columns of the tile
constexpr int kThreads = 128 * Tile::kWarpgroups;

/// What all blocks have of the columns that this block adds up. It lies where the ring was.
using Sums = float[kParts][kOwn][kThreads];
static_assert(sizeof(Sums) <= sizeof(Tile::Ring::A) + sizeof(Tile::Ring::B));

__global__ void __cluster_dims__(kParts) __launch_bounds__(kThreads, 2)
    multiply(const __grid_constant__ Operands<bf16> x, const __grid_constant__ TensorMaps maps, Sizes sizes) {
  extern __shared__ __align__(1024) char memory[];
  auto& ring = *reinterpret_cast<Tile::Ring*>(memory);
  auto& sums = *reinterpret_cast<Sums*>(memory);
  const auto cluster = cooperative_groups::this_cluster();
  const int rank = static_cast<int>(block_rank_in_cluster()), tile = static_cast<int>(blockIdx.x) / kParts;
  const int i0 = tile / sizes.column_tiles * Tile::kRows, j0 = tile % sizes.column_tiles * Tile::kColumns;
  const Part part = part_of(sizes.blocks, rank, parts_of(sizes.blocks, kParts));
  TileProduct<Tile> product(0);
  multiply_tile(maps, ring, i0, j0, part.first, part.end, product);

  cluster_sync();  // no block needs its ring any more, so others may write to it
  product.for_each([&](int i, float sum) {
    float* const here = &sums[rank][i % kOwn][threadIdx.x];
    *cluster.map_shared_rank(here, static_cast<unsigned>(i / kOwn)) = sum;
  });
  cluster_sync();  // all sums have come; from here on a block reads its own shared memory alone
  float total[kOwn] = {};
  CUTE_UNROLL
  for (int from = 0; from < kParts; ++from) {  // in the order of k
    CUTE_UNROLL
    for (int i = 0; i < kOwn; ++i) total[i] += sums[from][i][threadIdx.x];
  }
  product.for_each_place(x.m, x.n, i0, j0 + rank * kOwnColumns, kOwnColumns, [&](int i, int j, int at) {
    *reinterpret_cast<__nv_bfloat162*>(&x.C[i][j]) = __floats2bfloat162_rn(total[at], total[at + 1]);
  });
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_maps<Tile>(p, t, stream, [&](const Operands<bf16>& x, const TensorMaps& maps, const Sizes& sizes) {
    return launch(multiply, dim3(static_cast<unsigned>(sizes.row_tiles) * sizes.column_tiles * kParts), dim3(kThreads),
                  sizeof(Tile::Ring), stream, x, maps, sizes);
  });
}

}  // namespace

extern const Step split_k_cluster;
const Step split_k_cluster = {
    "split-k-cluster",
    "The blocks of a cluster share k",
    "branch_split_k_cluster.cu",
    "With 64 rows there are few tiles, and the time is that of reading B from memory, which a quarter of the "
    "multiprocessors cannot ask for fast enough. So four blocks, a cluster, have a tile of 64 x 128 together, and each "
    "has a quarter of k: four times as many multiprocessors ask. At the end each block adds up a quarter of the tile's "
    "columns. It gets the others' sums of these by their writes to its shared memory, and adds them in the order of k, "
    "so that each run gives the same bits. Neither sums nor flags go through memory, and there is no second kernel. "
    "But a cluster has at most 8 blocks, or 16 where a kernel asks for that.",
    DType::bf16,
    whole_rows_bytes<bf16>,
    run,
    90};

}  // namespace falchion::ladder::gemm::on_gpu
