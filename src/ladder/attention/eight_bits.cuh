// src/ladder/attention/eight_bits.cuh: what step 10 needs before its loop: Q, K and V rounded to e4m3, with V turned;
// tiles of them; and the producer that loads these tiles.
#pragma once

#include <cuda_fp8.h>

#include "ladder/attention/hopper.cuh"

namespace falchion::ladder::on_gpu {

using e4m3 = cutlass::float_e4m3_t;

/// wgmma multiplies 64 x N x 32 numbers of 8 bits in the time of 64 x N x 16 of 16 bits. It wants both operands with
/// neighbours along k side by side: for P V these are keys, so V lies turned, (D, N). Below it are eight rows of ones:
/// P times a row of ones is the sum of P's row, so l comes with O.
template <int d>
struct EightTile {
  static constexpr int kD = d, kM = 128, kN = 128, kStages = 2, kOnes = 8;
  static constexpr int kConsumers = 2;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
  using D = Int<kD>;
  using DAndOnes = Int<kD + kOnes>;
  using M = Int<kM>;
  using N = Int<kN>;
  using Stages = Int<kStages>;

  using Atom = std::conditional_t<d == 128, GMMA::Layout_K_SW128_Atom<e4m3>, GMMA::Layout_K_SW64_Atom<e4m3>>;
  using AtomT = GMMA::Layout_K_SW128_Atom<e4m3>;                                    // of V^T, whose rows have N keys
  using LayoutQ = decltype(tile_to_shape(Atom{}, Shape<M, D>{}));                   // (M, D)
  using LayoutK = decltype(tile_to_shape(Atom{}, Shape<N, D, Stages>{}));           // (N, D, stages)
  using LayoutVt = decltype(tile_to_shape(AtomT{}, Shape<DAndOnes, N, Stages>{}));  // (D + 8, N, stages)

  using Warpgroups = Layout<Shape<Int<kConsumers>, _1, _1>>;
  using MmaQk = decltype(make_tiled_mma(
      GMMA::ss_op_selector<e4m3, e4m3, float, Shape<M, N, D>, GMMA::Major::K, GMMA::Major::K>(), Warpgroups{}));
  using ProductPv = std::conditional_t<d == 128, SM90::GMMA::MMA_64x136x32_F32E4M3E4M3_RS_TN<>,
                                       SM90::GMMA::MMA_64x72x32_F32E4M3E4M3_RS_TN<>>;
  using MmaPv = decltype(make_tiled_mma(ProductPv{}, Warpgroups{}));

  struct Shared {
    alignas(1024) e4m3 Q[kM * kD];
    Ring<e4m3, kN * kD, kStages> K;
    Ring<e4m3, kN*(kD + kOnes), kStages> V;
    ClusterTransactionBarrier full_Q;
  };
  using Position = sm90::RingPosition<kStages>;
};

/// The operands of 8 bits in the workspace: Q and K as they were, and V^T (b, h, D + 8, columns).
struct EightOperands {
  e4m3 *q, *k, *v;
  int columns;  // keys, rounded up to whole tiles
  std::size_t bytes;

  EightOperands(const Problem& p, void* workspace) : columns(std::max(divide_up(p.s_k, 128), 1) * 128) {
    const std::size_t heads = static_cast<std::size_t>(p.b) * p.h;
    const auto whole = [](std::size_t n) { return (n + 255) / 256 * 256; };
    const std::size_t of_q = whole(heads * p.s_q * p.d), of_k = whole(heads * p.s_k * p.d);
    q = static_cast<e4m3*>(workspace);
    k = q + of_q;
    v = k + of_k;
    bytes = of_q + of_k + heads * (p.d + 8) * columns;
  }
};

/// Rounds to nearest even. What is beyond 448 becomes 448.
FALCHION_DEVICE std::uint32_t two_of_eight_bits(float low, float high) {
  return __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3);
}

/// Q or K in 8 bits, two numbers a thread.
__global__ void round_rows(const __nv_bfloat162* x, std::uint16_t* to, std::int64_t pairs) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  const float2 pair = __bfloat1622float2(x[i]);
  to[i] = static_cast<std::uint16_t>(two_of_eight_bits(pair.x, pair.y));
}

/// Of the four keys in a row that a thread has in its operand P, an accumulator gives it two pairs that are eight keys
/// apart. So V^T has its keys in this order, in each 16 of them: 0 1 8 9 2 3 10 11 ...
FALCHION_DEVICE int key_of_place(int place) {
  return place / 16 * 16 + place % 16 / 4 * 2 + place % 2 + place % 4 / 2 * 8;
}

/// V^T of 128 keys of one head, with the ones below it. Keys past the end are 0.
template <int d>
__global__ void turn_v(const __grid_constant__ Problem p, const bf16* v, e4m3* to, int columns) {
  constexpr int kKeys = 128, kLine = kKeys + 4;  // 4 more against bank conflicts
  __shared__ alignas(4) std::uint8_t turned[(d + 8) * kLine];
  const int bh = blockIdx.y, k0 = blockIdx.x * kKeys;
  const Head<const bf16> V = head_of(p, v, p.s_k, bh);
  for (int i = threadIdx.x; i < (d + 8) * kKeys; i += blockDim.x) {
    const int place = i / (d + 8), x = i % (d + 8), key = k0 + key_of_place(place);
    turned[x * kLine + place] = e4m3(x >= d ? 1.F : key < p.s_k ? float(V[key][x]) : 0.F).storage;
  }
  __syncthreads();
  e4m3* const head = to + std::int64_t{bh} * (d + 8) * columns + k0;
  for (int i = threadIdx.x; i < (d + 8) * kKeys / 4; i += blockDim.x) {
    const int x = i / (kKeys / 4), place = i % (kKeys / 4) * 4;
    *reinterpret_cast<std::uint32_t*>(head + std::int64_t{x} * columns + place) =
        *reinterpret_cast<const std::uint32_t*>(turned + x * kLine + place);
  }
}

/// load: as produce, but a tile of V^T is D + 8 rows, from column k0 on.
template <class Tile>
FALCHION_DEVICE void produce_eight(const TensorMaps& maps, const QueryTile<Tile>& t, typename Tile::Shared& shared,
                                   int heads) {
  if (t.end <= 0) return;
  const int head = t.bh % heads, batch = t.bh / heads;
  typename Tile::Position at;  // K and V^T of a tile have stages of the same number
  sm90::load_boxes<1, Tile::kD>(maps.q, shared.full_Q, shared.Q, sm90::kReadOnce, head, t.q0, batch);
  CUTE_NO_UNROLL
  for (int k0 = 0; k0 < t.end; k0 += Tile::kN) {
    const int stage = at.stage;
    shared.K.empty[stage].wait(at.parity ^ 1);  // in the first round it does not wait
    sm90::load_boxes<1, Tile::kD>(maps.k, shared.K.full[stage], shared.K.tile[stage], sm90::kReadAgain, head, k0,
                                  batch);
    shared.V.empty[stage].wait(at.parity ^ 1);
    shared.V.full[stage].arrive_and_expect_tx(sizeof shared.V.tile[stage]);
    SM90_TMA_LOAD_4D::copy(&maps.v, reinterpret_cast<std::uint64_t*>(&shared.V.full[stage]), sm90::kReadAgain,
                           shared.V.tile[stage], k0, head, 0, batch);
    at.advance();
  }
}

/// Enqueues the kernels that make the operands, and the tensor maps of these.
template <class Tile>
Status make_operands(const Problem& p, const Tensors& t, Stream stream, TensorMaps* maps) {
  const EightOperands to(p, t.workspace);
  const auto round = [&](const void* x, e4m3* y, int s) {
    const std::int64_t pairs = std::int64_t{p.b} * p.h * s * p.d / 2;
    return launch(round_rows, dim3(static_cast<unsigned>((pairs + 255) / 256)), dim3(256), 0, stream,
                  static_cast<const __nv_bfloat162*>(x), reinterpret_cast<std::uint16_t*>(y), pairs);
  };
  if (Status status = round(t.q, to.q, p.s_q); !status) return status;
  if (Status status = round(t.k, to.k, p.s_k); !status) return status;
  Status status = launch(turn_v<Tile::kD>, dim3(to.columns / 128, p.b * p.h), dim3(256), 0, stream, p,
                         static_cast<const bf16*>(t.v), to.v, to.columns);
  if (!status) return status;
  const std::int64_t row = std::int64_t{p.h} * p.d, head = std::int64_t{p.d + 8} * to.columns;
  const auto rows = [&](CUtensorMap* map, e4m3* x, int s) {
    return sm90::make_tensor_map<e4m3>(map, View{x, {s * row, row, p.d, 1}},
                                       sm90::TensorBox{p.b, s, p.h, p.d, Tile::kD, 1, 128}, t.o);
  };
  const View turned{to.v, {p.h * head, to.columns, head, 1}};
  const sm90::TensorBox box{p.b, p.d + 8, p.h, to.columns, Tile::kN, 1, Tile::kD + Tile::kOnes};
  for (const cudaError_t error : {rows(&maps->q, to.q, p.s_q), rows(&maps->k, to.k, p.s_k),
                                  sm90::make_tensor_map<e4m3>(&maps->v, turned, box, t.o)})
    if (error != cudaSuccess) return to_status(error);
  return {};
}

}  // namespace falchion::ladder::on_gpu
