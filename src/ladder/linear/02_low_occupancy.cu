// src/ladder/linear/02_low_occupancy.cu: a kernel for few heads, after fast-transformers' lmha_low_occupancy kernel. A
// block of threads has one *column* of V, and each of its warps takes four tokens. Sums of k v are made in a thread,
// then over the warps through shared memory. The product with q is summed by shuffles. It is f32.
#include "ladder/linear/low_occupancy.cuh"

namespace falchion::ladder::linear::on_gpu {
namespace {

template <int kE, int kWarps>
__global__ void __launch_bounds__(32 * kWarps)
    attend(Problem p, const float* q, const float* k, const float* v, float* o) {
  constexpr int kRows = kE / 32;  // rows of the column that a lane has
  __shared__ float sums[kWarps][kE];
  const int column = blockIdx.x, bh = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Head<const float> Q = head_of(p, q, p.d_qk, bh), K = head_of(p, k, p.d_qk, bh), V = head_of(p, v, p.d_v, bh);
  const Head<float> O = head_of(p, o, p.d_v, bh);
  float S = 0;  // row threadIdx.x of the column
  for (int j0 = 0; j0 < p.s; j0 += kTokens * kWarps) {
    const int j = j0 + kTokens * warp;
    // own[t] is what the tokens of this warp add to the column, up to and with token t.
    float query[kTokens][kRows], own[kTokens][kRows], sum[kRows] = {};
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const bool there = j + t < p.s;
      const float value = there ? V[j + t][column] : 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const bool inside = there && lane + 32 * r < p.d_qk;
        query[t][r] = inside ? Q[j + t][lane + 32 * r] : 0;
        sum[r] += inside ? K[j + t][lane + 32 * r] * value : 0;
        own[t][r] = sum[r];
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[warp][lane + 32 * r] = sum[r];
    scan(sums, S);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float dot = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) dot += query[t][r] * (sums[warp][lane + 32 * r] + own[t][r]);
      const float sum_of_lanes = sum_of_team<32>(dot);
      if (lane == t && j + t < p.s) O[j + t][column] = sum_of_lanes;
    }
  }
}

struct Kernel {
  template <int kE, int kWarps>
  static constexpr auto kernel() {
    return attend<kE, kWarps>;
  }
  template <int kE, int kWarps>
  static constexpr int tokens() {
    return kTokens * kWarps;
  }
  static constexpr double kAlone = 2000;  // fast-transformers' kernel on an H200: 1.0 us with two blocks per SM
  static constexpr double kBytes = 19;    // Q and K of (4, 16, 8192, 64), read 64 times in 3.5 ms
};

}  // namespace

const Candidate low_occupancy_kernel = {Columns<Kernel>::cycles, Columns<Kernel>::run};

extern const Step low_occupancy;
const Step low_occupancy = {
    "low-occupancy",
    "One block for each column, 4 tokens for each warp",
    "02_low_occupancy.cu",
    "One head now gives 64 blocks instead of one, and a block computes 16 to 64 tokens at a time. A warp has four "
    "tokens, and its lanes have the rows of the column. What earlier warps add reaches the later ones as a prefix sum "
    "through shared memory. Where there are few heads, this is 5 to 15 times as fast. The price is that every column "
    "reads Q and K again, 64 or 128 times in all and at best from the L2, and that it uses 4 bytes of V and O where 32 "
    "are moved. So with many heads this kernel is the slower one. And each round begins with a load that all threads "
    "wait for.",
    DType::f32,
    no_workspace,
    Columns<Kernel>::run};

}  // namespace falchion::ladder::linear::on_gpu
