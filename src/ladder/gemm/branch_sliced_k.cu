// src/ladder/gemm/branch_sliced_k.cu: a branch of step 08 for a small C: the warps of a block have all of its tile
// each, and share k. At the end their sums are added up in shared memory. It pays at 64 x 256 x 16384, and costs that a
// tile of 16 x 16 fetches each number of A and B for 16 multiplications, where one of 128 x 128 has 128.
#include "base/host_device.hpp"
#include "ladder/gemm/parts.hpp"
#include "ladder/gemm/tensor_core.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

constexpr int kRows = 16, kColumns = 16, kDepth = 256, kStages = 5, kWarps = 8;
constexpr int kSlices = kDepth / 16 / kWarps;  // of 16 along k, which a warp has of a stage
constexpr int kBlocksAcross = kColumns / 16;
constexpr int kSliceThreads = 32 * kWarps;

/// Pieces of 16 bytes, swizzled so that the 8 that ldmatrix takes from 8 rows at a time lie in different banks: a row
/// of A has 32 of them, and four rows of B have 8.
struct Stage {
  alignas(128) bf16 A[kRows][kDepth];
  alignas(128) bf16 B[kDepth][kColumns];

  FALCHION_DEVICE bf16* piece_a(int row, int p) { return &A[row][(p ^ row % 8) * 8]; }
  FALCHION_DEVICE bf16* piece_b(int row, int p) {
    constexpr int kPieces = kColumns / 8;
    return &B[row][(p ^ row / (8 / kPieces) % kPieces) * 8];
  }
};

/// What a warp has of a tile's sums.
struct SliceSums {
  float sum[2 * kBlocksAcross][4] = {};

  FALCHION_DEVICE void multiply_add(Stage& stage, int slice) {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 16, half = lane / 16;
    Block a, b[kBlocksAcross];
    load_block(a, stage.piece_a(row, slice * 2 + half));
#pragma unroll
    for (int c = 0; c < kBlocksAcross; ++c) load_block_transposed(b[c], stage.piece_b(slice * 16 + row, c * 2 + half));
#pragma unroll
    for (int c = 0; c < 2 * kBlocksAcross; ++c)
      on_gpu::multiply_add(sum[c], a, b[c / 2][c % 2 * 2], b[c / 2][c % 2 * 2 + 1]);
  }
  FALCHION_DEVICE void put(float (&to)[kRows][kColumns]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int c = 0; c < 2 * kBlocksAcross; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) to[e / 2 * 8 + lane / 4][c * 8 + lane % 4 * 2 + e % 2] = sum[c][e];
  }
};

FALCHION_DEVICE void load(const Operands<bf16>& x, int i0, int j0, int l0, Stage& to) {
  constexpr int kPiecesA = kDepth / 8, kPiecesB = kColumns / 8;
#pragma unroll
  for (int at = static_cast<int>(threadIdx.x); at < kRows * kPiecesA; at += kSliceThreads) {
    const int row = at / kPiecesA, p = at % kPiecesA, i = i0 + row, l = l0 + p * 8;
    copy_async_16(to.piece_a(row, p), x.A[i] + l, i < x.m && l < x.k);
  }
#pragma unroll
  for (int at = static_cast<int>(threadIdx.x); at < kDepth * kPiecesB; at += kSliceThreads) {
    const int row = at / kPiecesB, p = at % kPiecesB, l = l0 + row, j = j0 + p * 8;
    copy_async_16(to.piece_b(row, p), x.B[l] + j, l < x.k && j < x.n);
  }
  commit_copies();
}

__global__ void __launch_bounds__(kSliceThreads) multiply(const __grid_constant__ Operands<bf16> x) {
  extern __shared__ __align__(128) char memory[];
  auto* const stages = reinterpret_cast<Stage*>(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int tile = static_cast<int>(blockIdx.x), across = divide_up(x.n, kColumns);
  const int i0 = tile / across * kRows, j0 = tile % across * kColumns;
  for (int s = 0; s < kStages - 1; ++s) load(x, i0, j0, s * kDepth, stages[s]);
  SliceSums own;
  for (int l0 = 0, number = 0; l0 < x.k; l0 += kDepth, ++number) {
    wait_copies<kStages - 2>();  // this stage has arrived
    __syncthreads();             // and no thread still reads the previous one
    load(x, i0, j0, l0 + (kStages - 1) * kDepth, stages[(number + kStages - 1) % kStages]);
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice)
      own.multiply_add(stages[number % kStages], slice_of(slice, warp, kWarps));
  }
  wait_copies<0>();
  __syncthreads();
  auto* const sums = reinterpret_cast<float(*)[kRows][kColumns]>(memory);  // of each warp, where the stages were
  own.put(sums[warp]);
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < kRows * kColumns / 2; at += kSliceThreads) {
    const int row = at / (kColumns / 2), column = at % (kColumns / 2) * 2, i = i0 + row, j = j0 + column;
    float2 total{};
#pragma unroll
    for (int from = 0; from < kWarps; ++from) {  // in the order of the warps
      total.x += sums[from][row][column];
      total.y += sums[from][row][column + 1];
    }
    if (i < x.m && j < x.n) *reinterpret_cast<__nv_bfloat162*>(&x.C[i][j]) = __floats2bfloat162_rn(total.x, total.y);
  }
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_whole_rows<bf16>(p, t, stream, [&](const Operands<bf16>& x) {
    return launch(multiply, dim3(static_cast<unsigned>(divide_up(p.m, kRows)) * divide_up(p.n, kColumns)),
                  dim3(kSliceThreads), kStages * sizeof(Stage), stream, x);
  });
}

}  // namespace

extern const Step sliced_k;
const Step sliced_k = {
    "sliced-k",
    "The warps of a block share k",
    "branch_sliced_k.cu",
    "Where C is small, large tiles leave most multiprocessors without work, and small ones leave the warps of a block "
    "without. 64 x 256 are 2 tiles of 128 x 128 and 64 of 16 x 16, but one of those is the work of one warp, which "
    "waits for most of the time. Here all 8 warps of a block have all of the tile: of each 128 numbers along k a warp "
    "has 16, so it reads operands that no other warp reads, and no operand twice. At the end the 8 sums of an element "
    "are added up in shared memory, in the order of the warps, so that each run gives the same bits. Nothing but C is "
    "written to memory, and there is one kernel. But k is not cut across blocks, so one multiprocessor reads all of k "
    "for its tile.",
    DType::bf16,
    whole_rows_bytes<bf16>,
    run};

}  // namespace falchion::ladder::gemm::on_gpu
