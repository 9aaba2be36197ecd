// src/sm80/attention_forward.cuh: softmax attention, forward, with mma.sync.   What: ref/.   Here: when.
// FlashAttention-2 (arXiv:2307.08691): a CTA owns M query rows and walks over the keys they see; cp.async brings the
// next K and V tile while this one is multiplied. Letters: docs/notation.md. What was measured:
// docs/design/sm80_forward.md
#pragma once

#include "blocks/gpu_softmax.cuh"
#include "blocks/sm80_fragments.cuh"
#include "gpu/attention_band.cuh"
#include "gpu/attention_kernel.hpp"
#include "gpu/attention_tile.cuh"
#include "sm80/attention_forward_config.hpp"
#include "sm80/attention_launch.cuh"
#include "sm80/attention_load.cuh"
#include "sm80/attention_products.cuh"
#include "sm80/attention_store.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// Between the two products: S -> scores, masked, with m raised where a row has outgrown it.
template <class Config, class Scores, class Softmax, class Matrix, class Coordinates, class Output>
__device__ __forceinline__ void score_and_mask(const AttentionTile& t, Scores& scores, Softmax& softmax, Matrix& S,
                                               const Coordinates& cS, Output& rO, int key0) {
  scores.apply(S, cS, key0);                                                                       // score.apply
  if (key0 < t.unmasked_begin || key0 + Config::kKeys > t.unmasked_end) scores.keep(S, cS, key0);  // mask.keep
  float top[Softmax::kSize], shrink[Softmax::kSize];
  if (softmax.outgrown(S, scores.unit, top)) {
    softmax.raise(top, scores.unit, shrink);
    scale_rows(rows_columns(rO), shrink);
  }
  scores.seen(top);
  softmax.start_update(S, scores.unit);
}

/// P = softmax.update(S) and O += P V together: P of 16 keys is made under the products of the 16 before.
template <class Config, class Scores, class Softmax, class Fragment, class Coordinates, class Output, class V>
__device__ __forceinline__ void update_and_multiply(typename Config::TiledMma mma, Scores& scores, Softmax& softmax,
                                                    Fragment& rS, const Coordinates& cS, Output& rO, const V& sVt,
                                                    int key0) {
  auto S = rows_columns(rS);
  auto rP = make_tensor<typename Config::Element>(as_operand_a(rS.layout()));  // (8, M, N / 16)
  multiply_p_v<Config>(mma, rO, rP, sVt, [&](auto k, auto share, auto shares) {
    constexpr int kElements = Softmax::kSize * 4, kEach = (kElements + shares - 1) / shares;
    CUTE_UNROLL
    for (int e = share * kEach; e < (share + 1) * kEach && e < kElements; ++e)
      softmax.update(S, e / 4, k * 4 + e % 4, scores.unit);
    if constexpr ((share + 1) * kEach >= kElements && share * kEach < kElements) {
      scores.drop(S, cS, key0, k);
      convert(make_tensor(rS.data(), as_operand_a(rS.layout()))(_, _, k), rP(_, _, k));
    }
  });
}

template <class Config, class Scores>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    attention_forward(const __grid_constant__ AttentionArgs a, const __grid_constant__ Divisors by) {
  constexpr int kStages = Config::kStages, kKeys = Config::kKeys;
  extern __shared__ __align__(128) unsigned char memory[];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const AttentionTile t = AttentionTile::of<Config::kRows, kKeys>(a, by, static_cast<int>(blockIdx.x));
  if (t.row0 >= t.rows) return;
  const SharedTiles<Config> shared{reinterpret_cast<typename Config::Element*>(memory)};
  const auto sQ = shared.q();

  typename Config::TiledMma mma;
  const auto thread = mma.get_thread_slice(threadIdx.x);
  const auto cS = rows_columns(thread.partition_C(make_identity_tensor(Shape<Int<Config::kRows>, Int<kKeys>>{})));
  auto rQ = thread.partition_fragment_A(sQ);                                          // (8, M, D / 16)
  auto rO = partition_fragment_C(mma, Shape<Int<Config::kRows>, Int<Config::kD>>{});  // (4, M, D) f32
  clear(rO);
  OnlineSoftmax<2 * decltype(size<1>(rO))::value> softmax;
  softmax.reset();
  Scores scores(a, t);

  // The last tile comes first: it alone may be ragged. Its V is a group of its own: with one stage the first
  // S need not wait for it.
  const Loader<Config, Scores> loader(a, t);
  const int last = t.end - 1;
  loader.load_q(sQ);
  if (last >= t.begin) loader.load_k(last, shared.k(last), loader.keys_from(last));
  cp_async_fence();
  if (last >= t.begin) loader.load_v(last, shared.v(last), loader.keys_from(last));
  cp_async_fence();
  if constexpr (Config::kQInRegisters) {
    cp_async_wait<1>();
    __syncthreads();
    read_q<Config>(mma, rQ, sQ);
  }

  for (int n = last; n >= t.begin; --n) {
    cp_async_wait<kStages == 1>();
    __syncthreads();  // K (and V) of tile n have come, and nobody reads tile n + 1 any more
    if constexpr (kStages == 1) {
      if (n < last) loader.load_v(n, shared.v(n));
      cp_async_fence();
    }
    auto rS = partition_fragment_C(mma, Shape<Int<Config::kRows>, Int<kKeys>>{});  // (4, M, N) f32
    multiply_q_k<Config>(mma, rS, rQ, sQ, shared.k(n));                            // S = Q K^T
    if constexpr (kStages == 1) {
      cp_async_wait<0>();
      __syncthreads();  // V has come, and nobody reads K any more
    }
    if (n > t.begin) {
      loader.load_k(n - 1, shared.k(n - 1));
      if constexpr (kStages == 2) loader.load_v(n - 1, shared.v(n - 1));
      cp_async_fence();
    }
    auto S = rows_columns(rS);  // (rows, columns) of this thread
    score_and_mask<Config>(t, scores, softmax, S, cS, rO, n * kKeys);
    update_and_multiply<Config>(mma, scores, softmax, rS, cS, rO, shared.v_transposed(n), n * kKeys);  // O += P V
    if constexpr (kStages == 1) cp_async_fence();  // an empty group: "all but the last" is then K of the next tile
  }
  cp_async_wait<0>();
  // O goes where Q was. A warp has read its own rows of Q, but all threads have loaded them.
  if (t.begin >= t.end) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  softmax.finish();
  store_tile<Config>(a, t, mma, softmax, scores, rO, shared.base);
}

template <class Config, class Scores>
constexpr gpu::AttentionKernel attention_forward_entry(int (*probabilities)(const AttentionArgs&,
                                                                            void* stream) = nullptr) {
  return table_row<Config>(
      [](const AttentionArgs& a, void* stream) {
        return launch_attention<attention_forward<Config, Scores>, Config>(a, stream);
      },
      probabilities);
}

}  // namespace falchion::sm80
