// src/ladder/linear/04_vector_loads.cu: the kernels of steps 01 and 02 with loads of 16 bytes. It is f32.
#include "ladder/linear/low_occupancy.cuh"
#include "ladder/linear/recurrent.cuh"

namespace falchion::ladder::linear::on_gpu {
namespace {

/// Step 01, but a thread loads four numbers of q, of k or of v instead of one of each.
template <int kE>
__global__ void attend_head(Problem p, const float* q, const float* k, const float* v, float* o) {
  __shared__ Token<kE> tokens[2];
  const int bh = blockIdx.x;
  const Head<float> O = head_of(p, o, p.d_v, bh);
  const Piece<kE> piece(p, head_of(p, q, p.d_qk, bh), head_of(p, k, p.d_qk, bh), head_of(p, v, p.d_v, bh));
  clear(tokens);
  Column<kE> column;
  float4 next = {};
  if (p.s > 0 && piece.any()) *piece.target(tokens[0]) = *piece.source(0);
  for (int j = 0; j < p.s; ++j) {
    const bool more = piece.any() && j + 1 < p.s;
    if (more) next = *piece.source(j + 1);
    __syncthreads();
    const float sum = column.step(tokens[j % 2]);
    if (column.part() == 0 && column.number() < p.d_v) O[j][column.number()] = sum;
    if (more) *piece.target(tokens[(j + 1) % 2]) = next;
  }
}

/// Step 02, but a lane has four rows of the column, so that a warp is one, two or four teams.
template <int kE, int kWarps>
__global__ void __launch_bounds__(32 * kWarps)
    attend_column(Problem p, const float* q, const float* k, const float* v, float* o) {
  using Tile = Teams<kE, kWarps>;
  __shared__ alignas(16) typename Tile::Sums sums;
  const int column = blockIdx.x, bh = blockIdx.y;
  const Head<const float> Q = head_of(p, q, p.d_qk, bh), K = head_of(p, k, p.d_qk, bh), V = head_of(p, v, p.d_v, bh);
  const Head<float> O = head_of(p, o, p.d_v, bh);
  float S = 0;  // row threadIdx.x of the column
  for (int j0 = 0; j0 < p.s; j0 += Tile::kStep) {
    const int j = j0 + kTokens * Tile::team();
    Tile::attend(p, Tile::load(p, Q, K, V, j, column), sums, S, O, j, column);
  }
}

struct HeadKernel {
  template <int kE>
  static constexpr auto kernel() {
    return attend_head<kE>;
  }
  static constexpr Pace kPace = {.alone = 1000, .busy = 150};
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
  static constexpr double kAlone = 2000;
  static constexpr double kBytes = 34;  // Q and K of (4, 16, 8192, 64), read 64 times in 1.9 ms
};

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return run_cheaper({Heads<HeadKernel>::cycles, Heads<HeadKernel>::run},
                     {Columns<ColumnKernel>::cycles, Columns<ColumnKernel>::run}, p, t, stream);
}

}  // namespace

extern const Step vector_loads;
const Step vector_loads = {
    "vector-loads",
    "Loads of 16 bytes",
    "04_vector_loads.cu",
    "One load now brings a lane four rows of q or k, where it brought one. That is a quarter of the instructions for "
    "the same bytes. At d 64 half a warp now suffices for a token, so a warp has eight tokens instead of four. A step "
    "of a block is then twice as long, and its one wait for memory serves twice as many tokens. The product with q "
    "takes four shuffles instead of five. In the recurrent kernel 48 threads fetch a token, for which 64 threads "
    "needed three loads each. V is loaded as before, because a column has no four numbers next to each other.",
    DType::f32,
    no_workspace,
    run};

}  // namespace falchion::ladder::linear::on_gpu
