// src/ladder/linear/05_double_buffer.cu: the kernels of step 04, where the next tokens are on their way while these are
// computed. It is f32.
#include <cuda_pipeline_primitives.h>

#include "ladder/linear/low_occupancy.cuh"
#include "ladder/linear/recurrent.cuh"

namespace falchion::ladder::linear::on_gpu {
namespace {

inline constexpr int kGroup = 8;  // in tokens

/// Step 04 with groups of tokens: cp.async copies the next group directly to shared memory, without passing through
/// registers.
template <int kE>
__global__ void attend_head(Problem p, const float* q, const float* k, const float* v, float* o) {
  __shared__ Token<kE> tokens[2 * kGroup];
  const int bh = blockIdx.x;
  const Head<float> O = head_of(p, o, p.d_v, bh);
  const Piece<kE> piece(p, head_of(p, q, p.d_qk, bh), head_of(p, k, p.d_qk, bh), head_of(p, v, p.d_v, bh));
  const auto start = [&](int j0) {
    const int end = piece.any() ? min(j0 + kGroup, p.s) : 0;
    for (int j = j0; j < end; ++j)
      __pipeline_memcpy_async(piece.target(tokens[j % (2 * kGroup)]), piece.source(j), sizeof(float4));
    __pipeline_commit();
  };
  clear(tokens);
  Column<kE> column;
  start(0);
  for (int j0 = 0; j0 < p.s; j0 += kGroup) {
    start(j0 + kGroup);
    __pipeline_wait_prior(1);  // waits for all groups but the youngest: this group is here
    __syncthreads();
    for (int j = j0; j < min(j0 + kGroup, p.s); ++j) {
      const float sum = column.step(tokens[j % (2 * kGroup)]);
      if (column.part() == 0 && column.number() < p.d_v) O[j][column.number()] = sum;
    }
    __syncthreads();  // before the group after the next overwrites this one
  }
}

/// Step 04, where a block starts the loads of its next tokens before the products of these.
template <int kE, int kWarps>
__global__ void __launch_bounds__(32 * kWarps)
    attend_column(Problem p, const float* q, const float* k, const float* v, float* o) {
  using Tile = Teams<kE, kWarps>;
  __shared__ alignas(16) typename Tile::Sums sums;
  const int column = blockIdx.x, bh = blockIdx.y;
  const Head<const float> Q = head_of(p, q, p.d_qk, bh), K = head_of(p, k, p.d_qk, bh), V = head_of(p, v, p.d_v, bh);
  const Head<float> O = head_of(p, o, p.d_v, bh);
  float S = 0;  // row threadIdx.x of the column
  int j = kTokens * Tile::team();
  typename Tile::Loaded now = Tile::load(p, Q, K, V, j, column);
  for (int j0 = 0; j0 < p.s; j0 += Tile::kStep, j += Tile::kStep) {
    const typename Tile::Loaded next = Tile::load(p, Q, K, V, j + Tile::kStep, column);
    Tile::attend(p, now, sums, S, O, j, column);
    now = next;
  }
}

struct HeadKernel {
  template <int kE>
  static constexpr auto kernel() {
    return attend_head<kE>;
  }
  static constexpr Pace kPace = {.alone = 660, .busy = 150};  // an H200: 334 ns per token, one block per SM
};

struct ColumnKernel {
  template <int kE, int kWarps>
  static constexpr auto kernel() {
    return attend_column<kE, kWarps>;
  }
  template <int kE, int kWarps>
  static constexpr int tokens() {
    return Teams<kE, kWarps>::kStep;
  }
  static constexpr double kAlone = 1000;
  static constexpr double kBytes = 34;  // as in step 04: it waits for memory less, but needs as much of it
};

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return run_cheaper({Heads<HeadKernel>::cycles, Heads<HeadKernel>::run},
                     {Columns<ColumnKernel>::cycles, Columns<ColumnKernel>::run}, p, t, stream);
}

}  // namespace

extern const Step double_buffer;
const Step double_buffer = {
    "double-buffer",
    "The next tokens are loaded while these are computed",
    "05_double_buffer.cu",
    "Until here every step of a block of the second kernel began with a wait for memory. Now the block loads its next "
    "tokens into registers, 36 more for each thread, before the products of these tokens begin. The recurrent kernel "
    "did fetch one token ahead, but a token is computed in a fraction of the time that memory takes. Now it fetches "
    "eight tokens ahead with cp.async, which does not pass through registers, and the threads wait for each other "
    "twice in eight tokens instead of eight times. No load can improve what is left: the sums are made one after "
    "another on plain multipliers, and Q and K are read once for each column.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::linear::on_gpu
