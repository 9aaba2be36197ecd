// src/ladder/gemm/branch_split_k_memory.cu: a branch for a small C and a long k: blocks have parts of k and leave their
// sums in memory, and a second kernel adds these up. It runs on sm_90 alone.
#include <algorithm>

#include "ladder/gemm/one_tile.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

using Tile = HopperTile<128, 256, 2, 4>;
constexpr int kThreads = 128 * Tile::kWarpgroups, kAddThreads = 256;
constexpr int kWorkers = 64;     // so many blocks have been enough to use memory fully (H100)
constexpr int kLeastBlocks = 4;  // of 64 along k, in a part

/// Parts of k: as many as are wanted, if they are long enough.
FALCHION_HD int parts_of(int row_tiles, int column_tiles, int blocks) {
  const long long tiles = static_cast<long long>(row_tiles) * column_tiles;
  const long long wanted = tiles > 0 && tiles < kWorkers ? kWorkers / tiles : 1, most = blocks / kLeastBlocks;
  return static_cast<int>(wanted < most ? wanted : most > 1 ? most : 1);
}

/// The sums of each part, a matrix of f32. Rows lie `stride` apart, and parts m rows.
struct Sums {
  float* data;
  std::int64_t stride;
};

__global__ void __launch_bounds__(kThreads, 1)
    multiply(const __grid_constant__ Operands<bf16> x, const __grid_constant__ TensorMaps maps, Sizes sizes,
             Sums sums) {
  extern __shared__ __align__(1024) char memory[];
  auto& ring = *reinterpret_cast<Tile::Ring*>(memory);
  const int tiles = sizes.row_tiles * sizes.column_tiles, parts = static_cast<int>(gridDim.x) / tiles;
  const int tile = static_cast<int>(blockIdx.x) % tiles, part = static_cast<int>(blockIdx.x) / tiles;
  const int i0 = tile / sizes.column_tiles * Tile::kRows, j0 = tile % sizes.column_tiles * Tile::kColumns;
  const auto begin = [&](int number) { return static_cast<int>(std::int64_t{sizes.blocks} * number / parts); };
  TileProduct<Tile> product(cutlass::canonical_warp_group_idx());
  multiply_tile(maps, ring, i0, j0, begin(part), begin(part + 1), product);
  float* const to = sums.data + part * x.m * sums.stride;
  product.for_each_place(x.m, x.n, i0, j0, Tile::kColumns, [&](int i, int j, int at) {
    *reinterpret_cast<float2*>(to + i * sums.stride + j) = make_float2(product.sum(at), product.sum(at + 1));
  });
}

/// A thread adds up two neighbours, in the order of k.
__global__ void __launch_bounds__(kAddThreads) add(const __grid_constant__ Operands<bf16> x, Sums sums, int parts) {
  const int i = static_cast<int>(blockIdx.x), j = 2 * static_cast<int>(blockIdx.y * kAddThreads + threadIdx.x);
  if (j >= x.n) return;
  const float* from = sums.data + i * sums.stride + j;
  float2 total{};
#pragma unroll 16
  for (int part = 0; part < parts; ++part, from += x.m * sums.stride) {
    const float2 sum = __ldcg(reinterpret_cast<const float2*>(from));
    total.x += sum.x;
    total.y += sum.y;
  }
  *reinterpret_cast<__nv_bfloat162*>(&x.C[i][j]) = __floats2bfloat162_rn(total.x, total.y);
}

/// The sums lie behind the matrices whose rows are not whole.
std::size_t offset_of_sums(const Problem& p) { return (whole_rows_bytes<bf16>(p) + 255) / 256 * 256; }
std::size_t workspace_bytes(const Problem& p) {
  const int parts = parts_of(divide_up(p.m, Tile::kRows), divide_up(p.n, Tile::kColumns), divide_up(p.k, Tile::kDepth));
  return offset_of_sums(p) + sizeof(float) * static_cast<std::size_t>(parts * p.m * whole<bf16>(p.n));
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_maps<Tile>(
      p, t, stream, [&](const Operands<bf16>& x, const TensorMaps& maps, const Sizes& sizes) -> Status {
        const Sums sums{reinterpret_cast<float*>(static_cast<char*>(t.workspace) + offset_of_sums(p)), x.C.stride};
        const int parts = parts_of(sizes.row_tiles, sizes.column_tiles, sizes.blocks);
        const unsigned blocks = static_cast<unsigned>(sizes.row_tiles) * sizes.column_tiles * parts;
        if (Status status =
                launch(multiply, dim3(blocks), dim3(kThreads), sizeof(Tile::Ring), stream, x, maps, sizes, sums);
            !status)
          return status;
        return launch(add, dim3(x.m, divide_up(x.n, 2 * kAddThreads)), dim3(kAddThreads), 0, stream, x, sums, parts);
      });
}

}  // namespace

extern const Step split_k_memory;
const Step split_k_memory = {
    "split-k-memory",
    "Parts of k, added up by a second kernel",
    "branch_split_k_memory.cu",
    "256 x 256 are two tiles of 128 x 256, and 130 multiprocessors would watch. So k is cut into many parts, here 32. "
    "Each block leaves its sums in memory, as f32, and a second kernel adds those of an element up, in the order of k. "
    "The sums are written and read once, m x n x 4 bytes a part, and most of that stays in the L2. A second launch "
    "costs a few microseconds more. So it is for a C that is small and a k that is long, and there it can use all of "
    "the device, which neither warps nor clusters can.",
    DType::bf16,
    workspace_bytes,
    run,
    90};

}  // namespace falchion::ladder::gemm::on_gpu
