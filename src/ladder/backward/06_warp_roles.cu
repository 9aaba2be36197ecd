// src/ladder/backward/06_warp_roles.cu: the walk of step 05 on the engines of Hopper. TMA copies tiles and adds dQ,
// wgmma multiplies, and the warps have roles: one produces tiles, one adds dQ, and two warpgroups consume. Scores are
// transposed, so that P and dS are operands where they lie. It runs on sm_90 alone.
#include "base/host_device.hpp"
#include "ladder/backward/hopper.cuh"

namespace falchion::ladder::backward::on_gpu {
namespace {

/// A consumer, which has 64 of the keys.
template <class Tile>
class Consumer {
  using M = typename Tile::M;
  using N = typename Tile::N;
  using D = typename Tile::D;
  using MmaScores = typename Tile::MmaScores;
  using MmaKeys = typename Tile::MmaKeys;
  using MmaRows = typename Tile::MmaRows;
  using Scores = decltype(partition_fragment_C(MmaScores{}, Shape<N, M>{}));

 public:
  FALCHION_DEVICE Consumer(const Problem& p, const KeyBlock<Tile>& t, typename Tile::Shared& shared)
      : p(p), t(t), shared(shared) {
    clear(rdK);
    clear(rdV);
  }

  FALCHION_DEVICE void run() {
    if (t.first < p.s_q) shared.full_keys.wait(0);
    CUTE_NO_UNROLL
    for (int q0 = t.first; q0 < p.s_q; q0 += Tile::kM, at.advance()) {
      shared.full_rows[at.stage].wait(at.parity);
      start_scores(shared.K, shared.Q[0], rS);    // S^T = K Q^T
      start_scores(shared.V, shared.dO[0], rdP);  // dP^T = V dO^T
      sm90::wait_multiply<1>(rS);
      make_p(q0);                         // mask.keep, P
      start_keys(rP, shared.dO[0], rdV);  // dV += P^T dO
      sm90::wait_multiply<1>(rdP);
      make_ds();                          // dS
      start_keys(rdS, shared.Q[0], rdK);  // dK += dS^T Q
      put_ds();
      sm90::publish_to_async();
      sm90::sync_threads<128 * Tile::kConsumers>(1);  // the keys of the other consumer are there
      start_dq();                                     // dQ = dS K
      sm90::wait_multiply<0>(rdQ);
      if (threadIdx.x % 32 == 0) shared.empty_rows[at.stage].arrive();
      put_dq();
    }
    warpgroup_fence_operand(rdK);
    warpgroup_fence_operand(rdV);
  }

  /// Stores dK and dV in bf16, only keys below s_k.
  FALCHION_DEVICE void store(bf16* grad_k, bf16* grad_v) const {
    store(rdK, p.scale, head_of(p, grad_k, p.s_k, t.bh));
    store(rdV, 1, head_of(p, grad_v, p.s_k, t.bh));
  }

 private:
  using Keys = decltype(partition_fragment_C(MmaKeys{}, Shape<N, D>{}));
  using Rounded = decltype(make_tensor<bf16>(Layout<Int<Tile::kM / 2>>{}));

  FALCHION_DEVICE void start_scores(const bf16* keys, const bf16* rows, Scores& to) {
    const auto sK = make_tensor(make_smem_ptr(keys), typename Tile::LayoutK{});  // (N, D)
    const auto sQ = make_tensor(make_smem_ptr(rows), typename Tile::LayoutQ{});  // (M, D, stages)
    const auto slice = MmaScores{}.get_slice(threadIdx.x);
    const auto rK = slice.partition_fragment_A(sK);  // descriptors
    const auto rQ = slice.partition_fragment_B(sQ);
    sm90::start_multiply<true>(MmaScores{}, rK, rQ(_, _, _, at.stage), to);
  }
  FALCHION_DEVICE void start_keys(Rounded& pairs, const bf16* rows, Keys& to) {
    const auto sQt = make_tensor(make_smem_ptr(rows), typename Tile::LayoutQt{});  // (D, M, stages)
    const auto rQt = MmaKeys{}.get_slice(threadIdx.x).partition_fragment_B(sQt);
    sm90::start_multiply<false>(MmaKeys{}, sm90::as_wgmma_operand_a(pairs), rQt(_, _, _, at.stage), to);
  }
  FALCHION_DEVICE void start_dq() {
    const auto sdS = make_tensor(make_smem_ptr(shared.dS[0]), typename Tile::LayoutDs{});  // (M, N, stages)
    const auto sKt = make_tensor(make_smem_ptr(shared.K), typename Tile::LayoutKt{});      // (D, N)
    const auto slice = MmaRows{}.get_slice(threadIdx.x);
    const auto rA = slice.partition_fragment_A(sdS);
    const auto rB = slice.partition_fragment_B(sKt);
    sm90::start_multiply<true>(MmaRows{}, rA(_, _, _, at.stage), rB, rdQ);
  }

  /// The coordinates of each element of a result in its tile.
  template <class Mma, class Shape>
  static FALCHION_DEVICE auto coordinates(Mma mma, Shape shape) {
    return mma.get_slice(threadIdx.x).partition_C(make_identity_tensor(shape));
  }
  /// Elements e and e + 1 of S^T or dP^T have neighbouring columns, that is, query rows, with these statistics.
  template <class Coordinate>
  static FALCHION_DEVICE float2 two_of(const float* statistic, const Coordinate& at) {
    return *reinterpret_cast<const float2*>(statistic + get<1>(at));
  }

  /// P = exp(scale S - lse), rounded.
  FALCHION_DEVICE void make_p(int q0) {
    const auto at_pair = coordinates(MmaScores{}, Shape<N, M>{});
    const float unit = p.scale * float(M_LOG2E);
    const bool masked = past_key(p, q0) < t.k0 + Tile::kN;
    CUTE_UNROLL
    for (int e = 0; e < size(rS); e += 2) {
      const float2 of_rows = two_of(shared.lse[at.stage], at_pair(e));
      if (masked) {
        const int key = t.k0 + get<0>(at_pair(e)), row = q0 + get<1>(at_pair(e));
        if (key >= past_key(p, row)) rS(e) = -INFINITY;
        if (key >= past_key(p, row + 1)) rS(e + 1) = -INFINITY;
      }
      put(rP, e, probability(rS(e), unit, of_rows.x), probability(rS(e + 1), unit, of_rows.y));
    }
  }
  /// dS = P (dP - D), rounded. P is the rounded one, since there are no registers for both.
  FALCHION_DEVICE void make_ds() {
    const auto at_pair = coordinates(MmaScores{}, Shape<N, M>{});
    CUTE_UNROLL
    for (int e = 0; e < size(rdP); e += 2) {
      const float2 of_rows = two_of(shared.delta[at.stage], at_pair(e));
      const float2 P = __bfloat1622float2(recast<__nv_bfloat162>(rP)(e / 2));
      put(rdS, e, P.x * (rdP(e) - of_rows.x), P.y * (rdP(e + 1) - of_rows.y));
    }
  }
  static FALCHION_DEVICE void put(Rounded& to, int e, float x, float y) {
    recast<__nv_bfloat162>(to)(e / 2) = __floats2bfloat162_rn(x, y);
  }

  /// Writes dS^T, transposed by stmatrix, into the tile that both consumers share.
  FALCHION_DEVICE void put_ds() {
    const auto sdS = make_tensor(make_smem_ptr(shared.dS[at.stage]), tile_to_shape(SwizzledAtom{}, Shape<M, N>{}));
    const auto sdSt = make_tensor(sdS.data(), composition(sdS.layout(), Layout<Shape<N, M>, Stride<M, _1>>{}));
    const auto copy_dS = make_tiled_copy_C(Copy_Atom<SM90_U16x8_STSM_T, bf16>{}, MmaScores{});
    const auto thread = copy_dS.get_slice(threadIdx.x);
    const auto fragment = make_tensor(rdS.data(), rS.layout());
    copy(copy_dS, thread.retile_S(fragment), thread.partition_D(sdSt));
  }
  /// Writes this consumer's part of dQ, and signals the adding thread.
  FALCHION_DEVICE void put_dq() {
    shared.empty_dq.wait(parity_dq ^ 1);  // in the first round it does not wait
    parity_dq ^= 1;
    const auto sdQ = make_tensor(make_smem_ptr(shared.dQ), typename Tile::LayoutDq{});
    const auto at_sum = coordinates(MmaRows{}, Shape<M, D>{});
    CUTE_UNROLL
    for (int e = 0; e < size(rdQ); e += 2)
      *reinterpret_cast<float2*>(&sdQ(get<0>(at_sum(e)), get<1>(at_sum(e)))) = make_float2(rdQ(e), rdQ(e + 1));
    sm90::publish_to_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.full_dq.arrive();
  }

  FALCHION_DEVICE void store(const Keys& gradient, float scale, Head<bf16> to) const {
    const auto at_element = coordinates(MmaKeys{}, Shape<N, D>{});
    CUTE_UNROLL
    for (int e = 0; e < size(gradient); e += 2) {
      const int j = t.k0 + get<0>(at_element(e));
      if (j < p.s_k)
        *reinterpret_cast<__nv_bfloat162*>(&to[j][get<1>(at_element(e))]) =
            __floats2bfloat162_rn(scale * gradient(e), scale * gradient(e + 1));
    }
  }

  Scores rS, rdP;                                                // (64 keys, M) f32
  Rounded rP, rdS;                                               // (64 keys, M) bf16
  Keys rdK, rdV;                                                 // (64 keys, D) f32
  decltype(partition_fragment_C(MmaRows{}, Shape<M, D>{})) rdQ;  // this consumer's part of (M, D) f32
  typename Tile::Position at;
  unsigned parity_dq = 0;

  const Problem& p;
  const KeyBlock<Tile>& t;
  typename Tile::Shared& shared;
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    differentiate(const __grid_constant__ Problem p, const __grid_constant__ TensorMaps maps,
                  const __grid_constant__ Sums sums, bf16* grad_k, bf16* grad_v) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Tile::Shared*>(memory);
  const KeyBlock<Tile> t(p);
  init_barriers<Tile>(shared);
  if (cutlass::canonical_warp_group_idx() == Tile::kConsumers) {
    cutlass::arch::warpgroup_reg_dealloc<Tile::kProducerRegisters>();
    if (threadIdx.x % 128 == 0) produce(p, maps, sums, t, shared);
    if (threadIdx.x % 128 == 32) add_to_sums(p, maps, t, shared);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Tile::kConsumerRegisters>();
    Consumer<Tile> own(p, t, shared);
    own.run();
    own.store(grad_k, grad_v);
  }
}

Status run(const Problem& p, const Tensors& t, Stream stream) {
  return with_head_dim(p, [&](auto d) {
    using Tile = HopperTile<d.value>;
    return run_around(p, t, stream, [&](const Sums& sums) {
      TensorMaps maps;
      if (const cudaError_t error = make_maps<Tile>(p, t, sums, &maps); error != cudaSuccess) return to_status(error);
      return launch(differentiate<Tile>, dim3(divide_up(p.s_k, Tile::kN), p.b * p.h), dim3(Tile::kThreads),
                    sizeof(typename Tile::Shared), stream, p, maps, sums, static_cast<bf16*>(t.grad_k),
                    static_cast<bf16*>(t.grad_v));
    });
  });
}

}  // namespace

extern const Step warp_roles;
const Step warp_roles = {
    "warp-roles",
    "TMA, wgmma, a role for each warp",
    "06_warp_roles.cu",
    "TMA brings tiles of Q and dO, and wgmma multiplies them from shared memory, as in the forward ladder. What is new "
    "is where P and dS lie. wgmma takes its first factor from registers, but only as a result comes: so the scores are "
    "transposed. S^T = K Q^T has keys as rows, and P^T and dS^T are the first factors of dV += P^T dO and dK += dS^T Q "
    "where they were made. Each consumer has 64 keys with their dK and dV. Only dQ = dS K sums over the keys of both, "
    "so dS goes through shared memory once, transposed on the way. The consumers do not add dQ themselves: they leave "
    "it in shared memory, and one thread of another warp tells TMA to add it to the sums box by box. A consumer still "
    "does one thing after the other, and the two meet at a barrier in each visit.",
    sums_bytes,
    run,
    90};

}  // namespace falchion::ladder::backward::on_gpu
