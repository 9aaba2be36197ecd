// src/ladder/gemm/03_shared_tile.cu: a block of threads fetches tiles of A and B into shared memory, where each number
// serves 32 threads.
#include "ladder/gemm/operands.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

constexpr int kSide = 32;  // tiles of 32 x 32, by as many threads

__global__ void multiply(Operands<float> x) {
  __shared__ float sA[kSide][kSide], sB[kSide][kSide];
  const int row = static_cast<int>(threadIdx.y), column = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(blockIdx.y) * kSide + row, j = static_cast<int>(blockIdx.x) * kSide + column;
  float sum = 0;
  for (int l0 = 0; l0 < x.k; l0 += kSide) {
    sA[row][column] = i < x.m && l0 + column < x.k ? x.A[i][l0 + column] : 0;
    sB[row][column] = l0 + row < x.k && j < x.n ? x.B[l0 + row][j] : 0;
    __syncthreads();
#pragma unroll
    for (int l = 0; l < kSide; ++l) sum += sA[row][l] * sB[l][column];
    __syncthreads();
  }
  if (i < x.m && j < x.n) x.C[i][j] = sum;
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return launch(multiply, dim3(divide_up(p.n, kSide), divide_up(p.m, kSide)), dim3(kSide, kSide), 0, stream,
                operands_of<float>(p, t));
}

}  // namespace

extern const Step shared_tile;
const Step shared_tile = {
    "shared-tile",
    "Tiles of 32 x 32 in shared memory",
    "03_shared_tile.cu",
    "A block of 1024 threads has 32 x 32 elements of C. It copies 32 columns of A and 32 rows of B to shared memory, "
    "all threads wait until the tiles are complete, and then each number serves 32 threads. So a number is fetched "
    "from "
    "memory or from the L2 once for 32 multiplications. But it is fetched from shared memory for each of them: a "
    "thread still loads two numbers for one multiplication, and shared memory hands out 32 numbers a cycle, where 128 "
    "multiplications could be done.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::gemm::on_gpu
