// src/sm80/attention_forward/kernel.cuh: the kernel for softmax attention forward on mma.sync. It is FlashAttention-2
// (arXiv:2307.08691): a CTA owns M query rows and walks over the tiles of keys that they see, and cp.async loads the
// next K and V tile while the current one is multiplied. ref/ defines the result; this file gives the order of the
// steps. The letters are those of docs/notation.md. docs/design/sm80_forward.md has the measurements.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_forward/band.cuh"
#include "gpu/attention_forward/entry.hpp"
#include "gpu/attention_forward/tile.cuh"
#include "gpu/blocks/mma_fragments.cuh"
#include "gpu/blocks/softmax.cuh"
#include "sm80/attention_forward/config.hpp"
#include "sm80/attention_forward/launch.cuh"
#include "sm80/attention_forward/load.cuh"
#include "sm80/attention_forward/load_bytes.cuh"
#include "sm80/attention_forward/load_pages.cuh"
#include "sm80/attention_forward/products.cuh"
#include "sm80/attention_forward/store.cuh"

namespace falchion::sm80 {

using namespace gpu;

template <class Config, class Scores>
using LoaderOf =
    std::conditional_t<Config::kBytes, ByteLoader<Config, Scores>,
                       std::conditional_t<Config::kPages, PageLoader<Config, Scores>, Loader<Config, Scores>>>;

/// Whether m must be raised. top receives the maximum of each row over this lane's columns.
template <class Config, class Softmax, class KeyLoader, class Matrix, class Coordinates, class Top>
FALCHION_DEVICE bool outgrown(const Softmax& softmax, const KeyLoader& loader, int n, const Matrix& S,
                              const Coordinates& cS, float unit, Top& top) {
  if constexpr (Config::kBytes) {
    return loader.outgrown(softmax, n, S, cS, unit, top);
  } else {
    return softmax.outgrown(S, unit, top);
  }
}

/// The steps between the two products: S becomes scores, masked scores become -inf, and m is raised in rows with much
/// larger scores.
template <class Config, class Scores, class Softmax, class Matrix, class Coordinates, class Output, class KeyLoader>
FALCHION_DEVICE void score_and_mask(const AttentionTile& t, Scores& scores, Softmax& softmax, Matrix& S,
                                    const Coordinates& cS, Output& rO, int key0, const KeyLoader& loader) {
  const int n = key0 / Config::kKeys;
  if constexpr (Config::kBytes) loader.scale_scores(n, S, cS);
  scores.apply(S, cS, key0);                                                                       // score.apply
  if (key0 < t.unmasked_begin || key0 + Config::kKeys > t.unmasked_end) scores.keep(S, cS, key0);  // mask.keep
  if constexpr (Config::kPages) loader.hide_holes(n, S, cS);
  float top[Softmax::kSize], shrink[Softmax::kSize];
  if (outgrown<Config>(softmax, loader, n, S, cS, scores.unit, top)) {
    softmax.raise(top, scores.unit, shrink);
    scale_rows(rows_columns(rO), shrink);
    if constexpr (Config::kBytesOfV) scores.rounded.shrink(shrink);
  }
  scores.seen(top);
  softmax.start_update(S, scores.unit);
}

/// Computes P = softmax.update(S) and O += P V together: P of 16 keys is computed while the products of the previous 16
/// keys run.
template <class Config, class Scores, class Softmax, class Fragment, class Coordinates, class Output, class V,
          class KeyLoader>
FALCHION_DEVICE void update_and_multiply(typename Config::TiledMma mma, Scores& scores, Softmax& softmax, Fragment& rS,
                                         const Coordinates& cS, Output& rO, const V& sVt, int key0,
                                         const KeyLoader& loader) {
  auto S = rows_columns(rS);
  auto rP = make_tensor<typename Config::Element>(as_operand_a(rS.layout()));  // (8, M, N / 16)
  multiply_p_v<Config>(mma, rO, rP, sVt, [&](auto k, auto share, auto shares) {
    constexpr int kElements = Softmax::kSize * 4;
    constexpr int kEach = (kElements + shares - 1) / shares;
    CUTE_UNROLL
    for (int e = share * kEach; e < (share + 1) * kEach && e < kElements; ++e)
      softmax.update(S, e / 4, k * 4 + e % 4, scores.unit);
    if constexpr ((share + 1) * kEach >= kElements && share * kEach < kElements) {
      scores.drop(S, cS, key0, k);
      if constexpr (Config::kBytes) loader.scale_weights(key0 / Config::kKeys, k, S, cS);
      convert(make_tensor(rS.data(), as_operand_a(rS.layout()))(_, _, k), rP(_, _, k));
      if constexpr (Config::kBytesOfV) scores.rounded.add(rP(_, _, k));
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
  const AttentionTile t = AttentionTile::of<Config::kRows, kKeys, Config::kPages>(a, by, static_cast<int>(blockIdx.x));
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

  // The last tile is loaded first, because only it can have fewer keys than a full tile. Its V is a separate cp.async
  // group, so that with one stage the first S need not wait for V.
  LoaderOf<Config, Scores> loader(a, t);
  if constexpr (Config::kBytes) loader.keep_scales_at(shared.end());
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
    __syncthreads();  // K of tile n has arrived (with two stages V too), and no thread still reads tile n + 1
    if constexpr (kStages == 1) {
      if (n < last) loader.load_v(n, shared.v(n));
      cp_async_fence();
    }
    auto rS = partition_fragment_C(mma, Shape<Int<Config::kRows>, Int<kKeys>>{});  // (4, M, N) f32
    multiply_q_k<Config>(mma, rS, rQ, sQ, shared.k(n));                            // S = Q K^T
    if constexpr (kStages == 1) {
      cp_async_wait<0>();
      __syncthreads();  // V has arrived, and no thread still reads K
    }
    if (n > t.begin) {
      loader.load_k(n - 1, shared.k(n - 1));
      if constexpr (kStages == 2) loader.load_v(n - 1, shared.v(n - 1));
      cp_async_fence();
    }
    auto S = rows_columns(rS);  // (rows, columns) of this thread
    score_and_mask<Config>(t, scores, softmax, S, cS, rO, n * kKeys, loader);
    update_and_multiply<Config>(mma, scores, softmax, rS, cS, rO, shared.v_transposed(n), n * kKeys,
                                loader);  // O += P V
    // This commits an empty group, so that the wait for all groups but the last is a wait for K of the next tile.
    if constexpr (kStages == 1) cp_async_fence();
  }
  cp_async_wait<0>();
  // O is staged in the shared memory of Q. Only this warp reads these rows of Q, so after the loop it need not wait for
  // other warps. But all threads load Q. Without tiles of keys the CTA has passed no barrier since those loads, so it
  // passes one here.
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
  return attention_kernel_of<Config>(
      [](const AttentionArgs& a, void* stream) {
        return launch_attention<attention_forward<Config, Scores>, Config>(a, stream);
      },
      probabilities);
}

}  // namespace falchion::sm80
