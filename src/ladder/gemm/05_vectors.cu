// src/ladder/gemm/05_vectors.cu: the kernel of step 04 with 16 bytes in each move, and with the next tiles on their way
// through the registers while these are multiplied. CUTLASS's tutorial calls this kernel sgemm_2.
#include "ladder/gemm/whole_rows.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

constexpr int kSide = 128, kDepth = 8;
constexpr int kOwn = 8, kAcross = 16;  // a thread has 4 neighbouring rows and 4 more 64 further down; columns likewise
constexpr int kThreads = kAcross * kAcross;

struct Tiles {
  float A[kDepth][kSide + 4], B[kDepth][kSide];  // A transposed
};

/// A thread's piece of the next tiles: 4 neighbours of a row of A and 4 of a row of B.
struct Piece {
  float4 a, b;

  __device__ void load(const Operands<float>& x, int i0, int j0, int l0) {
    const int thread = static_cast<int>(threadIdx.x);
    const int i = i0 + thread / 2, l_a = l0 + thread % 2 * 4;
    const int l_b = l0 + thread / 32, j = j0 + thread % 32 * 4;
    a = i < x.m && l_a < x.k ? *reinterpret_cast<const float4*>(&x.A[i][l_a]) : float4{};
    b = l_b < x.k && j < x.n ? *reinterpret_cast<const float4*>(&x.B[l_b][j]) : float4{};
  }
  __device__ void store(Tiles& to) const {
    const int thread = static_cast<int>(threadIdx.x), i = thread / 2, l = thread % 2 * 4;
    to.A[l][i] = a.x;
    to.A[l + 1][i] = a.y;
    to.A[l + 2][i] = a.z;
    to.A[l + 3][i] = a.w;
    *reinterpret_cast<float4*>(&to.B[thread / 32][thread % 32 * 4]) = b;
  }
};

/// The place of a thread's number e of 8 in a row or column of the tile.
__device__ int place(int thread, int e) { return thread * 4 + e % 4 + e / 4 * (kSide / 2); }

__device__ void fetch(const float* from, int thread, float (&to)[kOwn]) {
#pragma unroll
  for (int e = 0; e < kOwn; e += 4)
    *reinterpret_cast<float4*>(to + e) = *reinterpret_cast<const float4*>(from + place(thread, e));
}

__global__ void __launch_bounds__(kThreads, 2) multiply(Operands<float> x) {
  __shared__ Tiles tiles[2];
  const int row = static_cast<int>(threadIdx.x) / kAcross, column = static_cast<int>(threadIdx.x) % kAcross;
  const int i0 = static_cast<int>(blockIdx.y) * kSide, j0 = static_cast<int>(blockIdx.x) * kSide;
  float sum[kOwn][kOwn] = {};
  Piece next;
  next.load(x, i0, j0, 0);
  next.store(tiles[0]);
  __syncthreads();
  for (int l0 = 0, now = 0; l0 < x.k; l0 += kDepth, now ^= 1) {
    next.load(x, i0, j0, l0 + kDepth);  // it arrives while these tiles are multiplied
#pragma unroll
    for (int l = 0; l < kDepth; ++l) {
      float a[kOwn], b[kOwn];
      fetch(tiles[now].A[l], row, a);
      fetch(tiles[now].B[l], column, b);
#pragma unroll
      for (int r = 0; r < kOwn; ++r)
#pragma unroll
        for (int c = 0; c < kOwn; ++c) sum[r][c] += a[r] * b[c];
    }
    next.store(tiles[now ^ 1]);  // free: all threads have passed the last barrier
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    const int i = i0 + place(row, r);
#pragma unroll
    for (int c = 0; c < kOwn; c += 4) {
      const int j = j0 + place(column, c);
      if (i < x.m && j < x.n) *reinterpret_cast<float4*>(&x.C[i][j]) = *reinterpret_cast<const float4*>(&sum[r][c]);
    }
  }
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_whole_rows<float>(p, t, stream, [&](const Operands<float>& x) {
    return launch(multiply, dim3(divide_up(p.n, kSide), divide_up(p.m, kSide)), dim3(kThreads), 0, stream, x);
  });
}

}  // namespace

extern const Step vectors;
const Step vectors = {
    "vectors",
    "16 bytes a move, the next tile in registers",
    "05_vectors.cu",
    "Everything moves in pieces of 16 bytes: from memory a quarter of the loads, and from shared memory 4 loads for 64 "
    "multiplications where step 04 had 16. Where a load of 16 bytes is wider than what 32 lanes may get at a time, the "
    "hardware serves 8 threads after 8 threads, unless neighbours want the same. And nobody waits for memory any more. "
    "A thread asks for its piece of the next tiles before it multiplies these, and stores it to a second pair of tiles "
    "when it is done. So there is one barrier a tile instead of two, and nothing is asked for in the moment when it is "
    "needed.",
    DType::f32,
    whole_rows_bytes<float>,
    run};

}  // namespace falchion::ladder::gemm::on_gpu
