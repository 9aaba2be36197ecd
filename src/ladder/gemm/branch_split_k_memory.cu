// src/ladder/gemm/branch_split_k_memory.cu: a branch of step 10 for a small C and a very long k: blocks all over the
// device have parts of k and leave their sums in memory, and a second kernel adds these up in the order of k. It pays
// at 256 x 256 x 65536, and costs a launch and m x n x 4 bytes a part, written and read. It runs on sm_90 alone.
#include "ladder/gemm/one_tile.cuh"
#include "ladder/gemm/parts.hpp"

namespace falchion::ladder::gemm::on_gpu {
namespace {

using Tile = HopperTile<128, 256, 2, 4>;
constexpr int kThreads = 128 * Tile::kWarpgroups, kAddThreads = 256;
constexpr int kWorkers = 128;  // blocks that are wanted: an H100 runs one on each of 132 multiprocessors

int parts_of(const Sizes& sizes) {
  const std::int64_t tiles = std::int64_t{sizes.row_tiles} * sizes.column_tiles;
  return tiles == 0 || tiles > kWorkers ? 1 : gemm::parts_of(sizes.blocks, kWorkers / static_cast<int>(tiles));
}

/// The sums of each part, a matrix of f32. Its rows lie `stride` apart, and parts m rows.
struct Sums {
  float* data;
  std::int64_t stride;
  int parts;
};

__global__ void __launch_bounds__(kThreads, 1)
    multiply(const __grid_constant__ Operands<bf16> x, const __grid_constant__ TensorMaps maps, Sizes sizes,
             Sums sums) {
  extern __shared__ __align__(1024) char memory[];
  auto& ring = *reinterpret_cast<Tile::Ring*>(memory);
  // The tiles of a part run at the same time, so that they read the same rows and columns of A and B.
  const int tiles = sizes.row_tiles * sizes.column_tiles;
  const int tile = static_cast<int>(blockIdx.x) % tiles, number = static_cast<int>(blockIdx.x) / tiles;
  const int i0 = tile / sizes.column_tiles * Tile::kRows, j0 = tile % sizes.column_tiles * Tile::kColumns;
  const Part part = part_of(sizes.blocks, number, sums.parts);
  TileProduct<Tile> product(cutlass::canonical_warp_group_idx());
  multiply_tile(maps, ring, i0, j0, part.first, part.end, product);
  if (sums.parts == 1) {
    product.store(x, i0, j0);
    return;
  }
  float* const to = sums.data + std::int64_t{number} * x.m * sums.stride;
  product.for_each_place(x.m, x.n, i0, j0, Tile::kColumns, [&](int i, int j, int at) {
    *reinterpret_cast<float2*>(to + i * sums.stride + j) = make_float2(product.sum(at), product.sum(at + 1));
  });
}

/// A thread adds up two neighbours, in the order of k. The loads of 16 parts are on their way at a time.
__global__ void __launch_bounds__(kAddThreads) add(const __grid_constant__ Operands<bf16> x, Sums sums) {
  const int i = static_cast<int>(blockIdx.x), j = 2 * static_cast<int>(blockIdx.y * kAddThreads + threadIdx.x);
  if (j >= x.n) return;
  const float* from = sums.data + i * sums.stride + j;
  float2 total{};
#pragma unroll 16
  for (int part = 0; part < sums.parts; ++part, from += x.m * sums.stride) {
    const float2 sum = __ldcg(reinterpret_cast<const float2*>(from));
    total.x += sum.x;
    total.y += sum.y;
  }
  *reinterpret_cast<__nv_bfloat162*>(&x.C[i][j]) = __floats2bfloat162_rn(total.x, total.y);
}

/// The sums lie behind the matrices whose rows are not whole.
std::size_t offset_of_sums(const Problem& p) { return (whole_rows_bytes<bf16>(p) + 255) / 256 * 256; }
std::size_t workspace_bytes(const Problem& p) {
  const int parts =
      parts_of({divide_up(p.m, Tile::kRows), divide_up(p.n, Tile::kColumns), divide_up(p.k, Tile::kDepth)});
  const std::size_t of_a_part = sizeof(float) * static_cast<std::size_t>(p.m * whole<bf16>(p.n));
  return offset_of_sums(p) + (parts > 1 ? parts * of_a_part : 0);
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  const auto run_both = [&](const Operands<bf16>& x, const TensorMaps& maps, const Sizes& sizes) -> Status {
    const Sums sums{reinterpret_cast<float*>(static_cast<char*>(t.workspace) + offset_of_sums(p)), x.C.stride,
                    parts_of(sizes)};
    const unsigned blocks = static_cast<unsigned>(sizes.row_tiles) * sizes.column_tiles * sums.parts;
    const Status status =
        launch(multiply, dim3(blocks), dim3(kThreads), sizeof(Tile::Ring), stream, x, maps, sizes, sums);
    if (!status || sums.parts == 1) return status;
    return launch(add, dim3(x.m, divide_up(x.n, 2 * kAddThreads)), dim3(kAddThreads), 0, stream, x, sums);
  };
  return with_maps<Tile>(p, t, stream, run_both);
}

}  // namespace

extern const Step split_k_memory;
const Step split_k_memory = {
    "split-k-memory",
    "Parts of k, added up by a second kernel",
    "branch_split_k_memory.cu",
    "256 x 256 are two tiles of 128 x 256, and 130 multiprocessors would watch. So k is cut into many parts, here 64. "
    "Each block leaves its sums in memory, as f32, and a second kernel adds those of an element up, in the order of k, "
    "so that each run gives the same bits. The sums are written and read once, m x n x 4 bytes a part, and most of "
    "that stays in the L2. A second launch costs a few microseconds more. So it is for a C that is small and a k that "
    "is long, and there it can use all of the device, which neither the warps of a block nor a cluster can.",
    DType::bf16,
    workspace_bytes,
    run,
    90};

}  // namespace falchion::ladder::gemm::on_gpu
