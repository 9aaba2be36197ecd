// src/ladder/gemm/06_warp_tiles.cu: cp.async copies tiles past the registers, four tiles deep, and each warp has a
// square tile of its own, with its lanes so placed that two of them share what they fetch. It is the last step in f32.
#include "ladder/gemm/async_copy.cuh"
#include "ladder/gemm/whole_rows.cuh"

namespace falchion::ladder::gemm::on_gpu {
namespace {

constexpr int kRows = 128, kColumns = 128, kDepth = 16, kStages = 4;
constexpr int kOwnRows = 8, kOwnColumns = 8;                             // of a thread
constexpr int kWarpRows = 4 * kOwnRows, kWarpColumns = 8 * kOwnColumns;  // of a warp: 4 x 8 lanes
constexpr int kWarpsAcross = kColumns / kWarpColumns;
constexpr int kThreads = 32 * (kRows / kWarpRows) * kWarpsAcross;

struct Stage {
  float A[kDepth][kRows + 4], B[kDepth][kColumns];  // A transposed
};

/// What a thread copies. A is transposed on the way, so its numbers go one by one: 8 neighbours of each of 4 rows in an
/// instruction of a warp, which are 4 whole sectors of the L2, and go to 32 banks.
class Loader {
 public:
  __device__ Loader(const Operands<float>& x, int i0, int j0)
      : x_(x),
        rows_left_(x.m - i0 - thread() / 8),
        a_(x.A[i0 + thread() / 8] + thread() % 8),
        b_(x.B[thread() / kPieces] + j0 + thread() % kPieces * 4),
        in_b_(j0 + thread() % kPieces * 4 < x.n) {}

  /// Starts the copies of the tiles at column l0 of A and row l0 of B.
  __device__ void start(int l0, Stage& to) const {
#pragma unroll
    for (int r = 0; r < kRows; r += kThreads / 8)
#pragma unroll
      for (int l = 0; l < kDepth; l += 8)
        copy_async_4(&to.A[thread() % 8 + l][thread() / 8 + r], a_ + r * x_.A.stride + l0 + l,
                     r < rows_left_ && l0 + l + thread() % 8 < x_.k);
#pragma unroll
    for (int l = 0; l < kDepth; l += kThreads / kPieces)
      copy_async_16(&to.B[thread() / kPieces + l][thread() % kPieces * 4], b_ + (l0 + l) * x_.B.stride,
                    in_b_ && l0 + l + thread() / kPieces < x_.k);
  }

 private:
  static constexpr int kPieces = kColumns / 4;  // in a row of B's tile
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  const Operands<float>& x_;
  const int rows_left_;
  const float *a_, *b_;
  const bool in_b_;
};

/// A thread's numbers of a row of a tile, 4 neighbours from each of kOwn / 4 places that lie kAcross * 4 apart.
template <int kAcross, int kOwn>
__device__ void fetch(const float* from, int thread, float (&to)[kOwn]) {
#pragma unroll
  for (int e = 0; e < kOwn; e += 4)
    *reinterpret_cast<float4*>(to + e) = *reinterpret_cast<const float4*>(from + thread * 4 + e * kAcross);
}

__global__ void __launch_bounds__(kThreads, 2) multiply(const __grid_constant__ Operands<float> x) {
  extern __shared__ __align__(16) char memory[];
  auto* stages = reinterpret_cast<Stage*>(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  // Lanes with neighbouring numbers share a row, and lanes two apart share a column.
  const int row = lane / 16 * 2 + lane / 2 % 2, column = lane / 4 % 4 * 2 + lane % 2;
  const int warp_row = warp / kWarpsAcross * kWarpRows, warp_column = warp % kWarpsAcross * kWarpColumns;
  const int i0 = static_cast<int>(blockIdx.y) * kRows, j0 = static_cast<int>(blockIdx.x) * kColumns;
  const Loader loader(x, i0, j0);
  float sum[kOwnRows][kOwnColumns] = {};
  for (int s = 0; s < kStages - 1; ++s) {
    loader.start(s * kDepth, stages[s]);
    commit_copies();
  }
  for (int l0 = 0; l0 < x.k; l0 += kDepth) {
    wait_copies<kStages - 2>();  // these tiles have arrived
    __syncthreads();             // and no thread still reads the previous ones
    const int ahead = l0 + (kStages - 1) * kDepth;
    loader.start(ahead, stages[ahead / kDepth % kStages]);
    commit_copies();
    const Stage& stage = stages[l0 / kDepth % kStages];
    float a[2][kOwnRows], b[2][kOwnColumns];  // the numbers for this product, and those for the next
    fetch<4>(stage.A[0] + warp_row, row, a[0]);
    fetch<8>(stage.B[0] + warp_column, column, b[0]);
#pragma unroll
    for (int l = 0; l < kDepth; ++l) {
      if (l + 1 < kDepth) {
        fetch<4>(stage.A[l + 1] + warp_row, row, a[(l + 1) % 2]);
        fetch<8>(stage.B[l + 1] + warp_column, column, b[(l + 1) % 2]);
      }
#pragma unroll
      for (int r = 0; r < kOwnRows; ++r)
#pragma unroll
        for (int c = 0; c < kOwnColumns; ++c) sum[r][c] += a[l % 2][r] * b[l % 2][c];
    }
  }
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
    const int i = i0 + warp_row + row * 4 + r % 4 + r / 4 * 16;
#pragma unroll
    for (int c = 0; c < kOwnColumns; c += 4) {
      const int j = j0 + warp_column + column * 4 + c * 8;
      if (i < x.m && j < x.n) *reinterpret_cast<float4*>(&x.C[i][j]) = *reinterpret_cast<const float4*>(&sum[r][c]);
    }
  }
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_whole_rows<float>(p, t, stream, [&](const Operands<float>& x) {
    return launch(multiply, dim3(divide_up(p.n, kColumns), divide_up(p.m, kRows)), dim3(kThreads),
                  kStages * sizeof(Stage), stream, x);
  });
}

}  // namespace

extern const Step warp_tiles;
const Step warp_tiles = {
    "warp-tiles",
    "cp.async, a tile for each warp",
    "06_warp_tiles.cu",
    "cp.async copies from memory to shared memory by itself, so the next tiles need no registers, and three of them "
    "may "
    "be on their way. A warp has 32 x 64 elements of C next to each other, so that its 32 lanes want only 96 different "
    "numbers for 2048 multiplications. And its lanes are so numbered that neighbours want the same numbers of A, and "
    "lanes two apart the same of B, so that their loads of 16 bytes can be served together. The numbers for "
    "the next product are fetched while this one is computed. What is left are multiplications: 64 in 68 instructions.",
    DType::f32,
    whole_rows_bytes<float>,
    run};

}  // namespace falchion::ladder::gemm::on_gpu
