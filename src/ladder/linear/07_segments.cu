// src/ladder/linear/07_segments.cu: cuts the sequence into segments, so that few heads fill the device. There are three
// launches: the first computes what each segment adds to S, the second computes S before each segment as a prefix sum,
// and the third is step 06 for all segments at once. It is bf16.
#include "ladder/linear/chunks.cuh"

namespace falchion::ladder::linear::on_gpu {
namespace {

/// The states are f32, each in the order of a block's registers: number i of thread t lies at i * threads + t. Any
/// order would do, since only blocks of the same shape write and read them, and in this one a warp moves 128 bytes at a
/// time. State n is the one before segment n + 1; before segment 0 there is none.
template <int d>
__device__ float* state_of(float* states, int segments, int bh, int segment) {
  return states + (std::int64_t{bh} * (segments - 1) + segment) * (d * d);
}

/// Computes K^T V of one segment.
template <int d>
__global__ void __launch_bounds__(Chunk<d>::kThreads, Chunk<d>::kBlocks)
    sum_segments(Problem p, int length, const bf16* k, const bf16* v, float* states) {
  using Tile = Chunk<d>;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(memory);
  const int segment = blockIdx.x;
  const int bh = blockIdx.y;
  const int begin = segment * length;
  const int end = min(begin + length, p.s);
  const Head<const bf16> K = head_of(p, k, p.d_qk, bh), V = head_of(p, v, p.d_v, bh);
  auto S = Tile::zero_state();
  for (int row0 = begin; row0 < end; row0 += Tile::kC) {
    __syncthreads();
    Tile::load(shared.K, K, row0, end, p.d_qk);
    Tile::load(shared.V, V, row0, end, p.d_v);
    Tile::wait_for_loads();
    Tile::add(shared, S);
  }
  float* out = state_of<d>(states, gridDim.x + 1, bh, segment) + threadIdx.x;
  CUTE_UNROLL
  for (int i = 0; i < size(S); ++i) out[i * Tile::kThreads] = S(i);
}

/// Turns the sum of each segment into the sum up to and with this segment, in place. A thread has one number of S.
template <int d>
__global__ void prefix(int segments, float* states) {
  float* state = state_of<d>(states, segments, blockIdx.y, 0) + blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
#pragma unroll 8
  for (int n = 0; n < segments - 1; ++n, state += d * d) *state = sum += *state;
}

/// Step 06 for one segment.
template <int d>
__global__ void __launch_bounds__(Chunk<d>::kThreads, Chunk<d>::kBlocks)
    attend(Problem p, int length, const bf16* q, const bf16* k, const bf16* v, bf16* o, float* states) {
  using Tile = Chunk<d>;
  extern __shared__ char memory[];
  const int segment = blockIdx.x;
  const int bh = blockIdx.y;
  const int begin = segment * length;
  auto S = Tile::zero_state();
  if (segment > 0) {
    const float* in = state_of<d>(states, gridDim.x, bh, segment - 1) + threadIdx.x;
    CUTE_UNROLL
    for (int i = 0; i < size(S); ++i) S(i) = in[i * Tile::kThreads];
  }
  Tile::walk(p, bh, begin, min(begin + length, p.s), q, k, v, o, *reinterpret_cast<typename Tile::Shared*>(memory), S);
}

/// How the sequence is cut.
struct Cut {
  int segments = 0, length = 0;  // length is in tokens, a multiple of the chunk
};

/// Cuts the sequence so that there are as many blocks as the device holds at once. A segment has at least four chunks,
/// because a state takes as long to write, add and read as two chunks.
template <int d>
Cut cut(const Problem& p) {
  constexpr int kC = Chunk<d>::kC, kShared = sizeof(typename Chunk<d>::Shared);
  int device = 0, sms = 0, blocks = 0;
  if (allow_shared(attend<d>, kShared) != cudaSuccess || cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, attend<d>, Chunk<d>::kThreads, kShared) != cudaSuccess)
    sms = blocks = 1;  // run() will report the error
  const int chunks = divide_up(p.s, kC), wanted = sms * blocks / std::max(p.b * p.h, 1);
  const int length = std::max(divide_up(chunks, std::max(wanted, 1)), 4);
  return {divide_up(chunks, length), length * kC};
}

template <class F>
Status with_dim(const Problem& p, const F& f) {
  return with_size<64, 128>(std::max(p.d_qk, p.d_v), f);
}

std::size_t workspace_bytes(const Problem& p) {
  std::size_t bytes = 0;
  const Status status = with_dim(p, [&](auto d) {
    const Cut how = cut<d.value>(p);
    bytes = sizeof(float) * d.value * d.value * static_cast<std::size_t>(p.b) * p.h * std::max(how.segments - 1, 0);
    return Status{};
  });
  return status ? bytes : 0;
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  if (Status status = p.check(); !status) return status;
  return with_dim(p, [&](auto d) {
    using Tile = Chunk<d.value>;
    constexpr int kShared = sizeof(typename Tile::Shared), kThreads = Tile::kThreads;
    const auto [segments, length] = cut<d.value>(p);
    const auto *q = static_cast<const bf16*>(t.q), *k = static_cast<const bf16*>(t.k);
    const auto* v = static_cast<const bf16*>(t.v);
    auto* states = static_cast<float*>(t.workspace);
    const int heads = p.b * p.h;
    if (segments > 1) {
      if (Status status = launch(sum_segments<d.value>, dim3(segments - 1, heads), dim3(kThreads), kShared, stream, p,
                                 length, k, v, states);
          !status)
        return status;
      constexpr int kBlock = 128;
      if (Status status = launch(prefix<d.value>, dim3(d.value * d.value / kBlock, heads), dim3(kBlock), 0, stream,
                                 segments, states);
          !status)
        return status;
    }
    return launch(attend<d.value>, dim3(segments, heads), dim3(kThreads), kShared, stream, p, length, q, k, v,
                  static_cast<bf16*>(t.o), states);
  });
}

}  // namespace

extern const Step segments;
const Step segments = {
    "segments",
    "Segments, so that few heads fill the device",
    "07_segments.cu",
    "S before a token is a sum, and a sum can be cut into parts. First K^T V of all segments is computed at the same "
    "time, then a prefix sum over the segments, and then all segments at the same time, each from the state before it. "
    "One head becomes as many blocks as the device holds: its SM count times the occupancy of the kernel. (The number "
    "40 of the classic kernels stood for the same idea.) K and V are read twice, from the L2 where they fit, and the "
    "chain of chunks is only as long as a segment. Several blocks on a multiprocessor also hide each other's waits. "
    "Three launches take a few microseconds of their own, so short sequences stay in one piece.",
    DType::bf16,
    workspace_bytes,
    run};

}  // namespace falchion::ladder::linear::on_gpu
