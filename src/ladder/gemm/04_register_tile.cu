// src/ladder/gemm/04_register_tile.cu: a thread has 8 x 8 elements of C in its registers, so that each number that it
// fetches from shared memory serves 8 multiplications. CUTLASS's tutorial calls this kernel sgemm_1.
#include "ladder/gemm/operands.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

constexpr int kSide = 128, kDepth = 8;  // a block's tile of C is 128 x 128, and tiles of A and B are 8 deep
constexpr int kOwn = 8, kAcross = 16;   // 16 x 16 threads, each with 8 rows and 8 columns, 16 apart
constexpr int kThreads = kAcross * kAcross;

__global__ void __launch_bounds__(kThreads) multiply(Operands<float> x) {
  // A stands transposed. With 4 more numbers in a row of sA the 32 numbers that a warp writes, 8 of each of 4 rows of
  // A, go to 32 banks.
  __shared__ float sA[kDepth][kSide + 4], sB[kDepth][kSide];
  const int thread = static_cast<int>(threadIdx.x), row = thread / kAcross, column = thread % kAcross;
  const int i0 = static_cast<int>(blockIdx.y) * kSide, j0 = static_cast<int>(blockIdx.x) * kSide;
  float sum[kOwn][kOwn] = {};
  for (int l0 = 0; l0 < x.k; l0 += kDepth) {
    for (int e = thread; e < kSide * kDepth; e += kThreads) {
      const int i = e / kDepth, l = e % kDepth;
      sA[l][i] = i0 + i < x.m && l0 + l < x.k ? x.A[i0 + i][l0 + l] : 0;
    }
    for (int e = thread; e < kSide * kDepth; e += kThreads) {
      const int l = e / kSide, j = e % kSide;
      sB[l][j] = l0 + l < x.k && j0 + j < x.n ? x.B[l0 + l][j0 + j] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int l = 0; l < kDepth; ++l) {
      float a[kOwn], b[kOwn];
#pragma unroll
      for (int e = 0; e < kOwn; ++e) {
        a[e] = sA[l][row + kAcross * e];
        b[e] = sB[l][column + kAcross * e];
      }
#pragma unroll
      for (int r = 0; r < kOwn; ++r)
#pragma unroll
        for (int c = 0; c < kOwn; ++c) sum[r][c] += a[r] * b[c];
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kOwn; ++r)
#pragma unroll
    for (int c = 0; c < kOwn; ++c) {
      const int i = i0 + row + kAcross * r, j = j0 + column + kAcross * c;
      if (i < x.m && j < x.n) x.C[i][j] = sum[r][c];
    }
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return launch(multiply, dim3(divide_up(p.n, kSide), divide_up(p.m, kSide)), dim3(kThreads), 0, stream,
                operands_of<float>(p, t));
}

}  // namespace

extern const Step register_tile;
const Step register_tile = {
    "register-tile",
    "8 x 8 elements in the registers of a thread",
    "04_register_tile.cu",
    "A thread has 64 elements of C, in 8 rows and 8 columns. For each column of A and row of B it fetches 8 and 8 "
    "numbers and multiplies each of the first with each of the second: 16 loads for 64 multiplications, where step 03 "
    "had 128. A multiprocessor hands out 32 numbers and does 128 multiplications a cycle, so both now take the same "
    "time. And a tile of C is 128 x 128, so that a number of A or B that has been fetched from the L2 serves 128 "
    "multiplications. One loss remains: all threads of a block wait for a tile, multiply, and wait for the next, and "
    "each moves 4 bytes at a time.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::gemm::on_gpu
