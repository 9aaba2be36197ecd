// src/ladder/gemm/branch_split_k_cluster.cu: a branch for few rows: the blocks of a cluster share k, and add up what
// they have through each other's shared memory. It runs on sm_90 alone.
#include <cooperative_groups.h>

#include <cute/arch/cluster_sm90.hpp>

#include "ladder/gemm/one_tile.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

using Tile = HopperTile<64, 128, 1, 7>;
constexpr int kParts = 4;                                // the blocks of a cluster, each with a part of k
constexpr int kOwn = TileProduct<Tile>::kSums / kParts;  // of a thread's sums, which its block adds up
constexpr int kOwnColumns = Tile::kColumns / kParts;     // they lie in so many columns of the tile
constexpr int kThreads = 128;

struct Shared {
  Tile::Ring ring;
  float sums[kParts][kOwn][kThreads];  // what the blocks have of the columns that this block adds up
};

__global__ void __cluster_dims__(kParts) __launch_bounds__(kThreads, 1)
    multiply(const __grid_constant__ Operands<bf16> x, const __grid_constant__ TensorMaps maps, Sizes sizes) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const auto cluster = cooperative_groups::this_cluster();
  cluster_arrive_relaxed();
  const int part = static_cast<int>(block_rank_in_cluster()), tile = static_cast<int>(blockIdx.x) / kParts;
  const int i0 = tile / sizes.column_tiles * Tile::kRows, j0 = tile % sizes.column_tiles * Tile::kColumns;
  TileProduct<Tile> product(0);
  multiply_tile(maps, shared.ring, i0, j0, sizes.blocks * part / kParts, sizes.blocks * (part + 1) / kParts, product);

  cluster_wait();  // all blocks have begun, so their shared memory may be written to
  product.for_each([&](int i, float sum) {
    float* const here = &shared.sums[part][i % kOwn][threadIdx.x];
    *cluster.map_shared_rank(here, static_cast<unsigned>(i / kOwn)) = sum;
  });
  cluster_sync();
  float total[kOwn] = {};
  CUTE_UNROLL
  for (int from = 0; from < kParts; ++from)  // in the order of k
    CUTE_UNROLL
  for (int i = 0; i < kOwn; ++i) total[i] += shared.sums[from][i][threadIdx.x];
  product.for_each_place(x.m, x.n, i0, j0 + part * kOwnColumns, kOwnColumns, [&](int i, int j, int at) {
    *reinterpret_cast<__nv_bfloat162*>(&x.C[i][j]) = __floats2bfloat162_rn(total[at], total[at + 1]);
  });
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_maps<Tile>(p, t, stream, [&](const Operands<bf16>& x, const TensorMaps& maps, const Sizes& sizes) {
    return launch(multiply, dim3(static_cast<unsigned>(sizes.row_tiles) * sizes.column_tiles * kParts), dim3(kThreads),
                  sizeof(Shared), stream, x, maps, sizes);
  });
}

}  // namespace

extern const Step split_k_cluster;
const Step split_k_cluster = {
    "split-k-cluster",
    "The blocks of a cluster share k",
    "branch_split_k_cluster.cu",
    "With 64 rows there are few tiles, and the time is that of reading B. So four blocks, a cluster, have a tile of "
    "64 x 128 together, and each has a quarter of k: four times as many multiprocessors ask for B. At the end each "
    "block adds up a quarter of the tile's columns. It gets the others' sums of these by their writes to its shared "
    "memory, and adds them in the order of k, so that each run gives the same bits. Neither sums nor flags go through "
    "memory, and there is no second kernel. But a cluster has at most 8 blocks.",
    DType::bf16,
    whole_rows_bytes<bf16>,
    run,
    90};

}  // namespace falchion::ladder::gemm::on_gpu
