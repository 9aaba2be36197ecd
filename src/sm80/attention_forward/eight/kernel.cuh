// src/sm80/attention_forward/eight/kernel.cuh: the variants of kind eight: attention of q and k of 8 bits. S = Q K^T of
// int8 is an exact product of integers. e4m3 is widened to f16, since GPUs before sm_89 have no product of it. P and O
// += P V are those of the other kinds, in 16 bits; V of e4m3 is widened too. The steps are those of ../kernel.cuh.
// docs/design/sm80_forward.md, "8 bits", describes it.
#pragma once

#include "base/host_device.hpp"
#include "sm80/attention_forward/eight/config.hpp"
#include "sm80/attention_forward/eight/load.cuh"
#include "sm80/attention_forward/eight/scores.cuh"
#include "sm80/attention_forward/kernel.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// S = Q K^T of bytes. Sums begin at the integer whose bits are those of the float 1.5 * 2^23. A sum is at most 2^22 in
/// size, for 256 products of -128 and -128, so its bits are those of that float plus the sum, too: a subtraction
/// converts it.
template <class Config, class Scores, class Q, class K>
FALCHION_DEVICE void multiply_bytes(Scores& rS, const Q& sQ, const K& sK) {
  static_assert(Config::kD <= 256);
  constexpr std::int32_t kBits = 0x4B400000;
  constexpr float kZero = 0x1.8p23f;
  typename Config::IntegerMma mma;
  using CopyAtom = typename Config::CopyAtomOfBytes;
  const auto thread = mma.get_thread_slice(threadIdx.x);
  const auto copy_q = make_tiled_copy_A(CopyAtom{}, mma).get_thread_slice(threadIdx.x);
  const auto copy_k = make_tiled_copy_B(CopyAtom{}, mma).get_thread_slice(threadIdx.x);
  auto rQ = thread.partition_fragment_A(sQ);                                               // (16, M, D / 32)
  auto rK = thread.partition_fragment_B(sK);                                               // (8, N, D / 32)
  auto sums = partition_fragment_C(mma, Shape<Int<Config::kRows>, Int<Config::kKeys>>{});  // (4, M, N) s32
  auto rQ_view = copy_q.retile_D(rQ);
  auto rK_view = copy_k.retile_D(rK);
  const auto tQsQ = copy_q.partition_S(sQ);
  const auto tKsK = copy_k.partition_S(sK);
  fill(sums, kBits);
  multiply(
      mma, sums, rQ, rK, [&](auto k) { copy(CopyAtom{}, tQsQ(_, _, k), rQ_view(_, _, k)); },
      [&](auto k) { copy(CopyAtom{}, tKsK(_, _, k), rK_view(_, _, k)); });
  CUTE_UNROLL
  for (int i = 0; i < size(rS); ++i) rS(i) = __int_as_float(sums(i)) - kZero;
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtas)
    attention_forward_of_bytes(const __grid_constant__ AttentionArgs a, const __grid_constant__ Divisors by) {
  constexpr int kKeys = Config::kKeys;
  extern __shared__ __align__(128) unsigned char memory[];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const AttentionTile t = AttentionTile::of<Config::kRows, kKeys>(a, by, static_cast<int>(blockIdx.x));
  if (t.row0 >= t.rows) return;
  const EightTiles<Config> shared{memory};

  typename Config::TiledMma mma;
  const auto thread = mma.get_thread_slice(threadIdx.x);
  const auto cS = rows_columns(thread.partition_C(make_identity_tensor(Shape<Int<Config::kRows>, Int<kKeys>>{})));
  auto rO = partition_fragment_C(mma, Shape<Int<Config::kRows>, Int<Config::kD>>{});  // (4, M, D) f32
  clear(rO);
  OnlineSoftmax<2 * decltype(size<1>(rO))::value> softmax;
  softmax.reset();
  EightScores<Config> scores(a, t, cS);

  const EightLoader<Config> loader(a, t, shared);
  const int last = t.end - 1;
  if (last >= t.begin) loader.start_k(last);
  loader.load_q();
  cp_async_fence();
  if constexpr (Config::kBytesOfV) {
    if (last >= t.begin) loader.start_v(last);
    cp_async_fence();
  }
  for (int n = last; n >= t.begin; --n) {
    cp_async_wait<Config::kBytesOfV ? 1 : 0>();  // the newest group is V to be widened
    if constexpr (!Config::kIntegers) loader.widen_k(n);
    __syncthreads();  // K of tile n is there, and no thread still reads tile n + 1
    if (n > t.begin) loader.start_k(n - 1);
    cp_async_fence();
    auto rS = partition_fragment_C(mma, Shape<Int<Config::kRows>, Int<kKeys>>{});  // (4, M, N) f32
    if constexpr (Config::kIntegers) {
      multiply_bytes<Config>(rS, shared.q(), shared.k(n));
    } else {
      auto rQ = thread.partition_fragment_A(shared.q());  // (8, M, D / 16)
      multiply_q_k<Config>(mma, rS, rQ, shared.q(), shared.k(n));
    }
    if constexpr (Config::kBytesOfV) {
      cp_async_wait<1>();  // the newest group is K of the next tile
      loader.widen_v(n);
      __syncthreads();  // V of tile n is there, and no thread still reads K
      if (n > t.begin) loader.start_v(n - 1);
      cp_async_fence();
    }
    auto S = rows_columns(rS);  // (rows, columns) of this thread
    score_and_mask<Config>(t, scores, softmax, S, cS, rO, n * kKeys, loader);
    update_and_multiply<Config>(mma, scores, softmax, rS, cS, rO, shared.v_transposed(n), n * kKeys,
                                loader);  // O += P V
  }
  cp_async_wait<0>();
  __syncthreads();  // O is staged where Q, K and V were
  softmax.finish();
  store_tile<Config>(a, t, mma, softmax, scores, rO, reinterpret_cast<typename Config::Element*>(memory));
}

/// Type: that of V where it has 16 bits, else that of Q.
template <class Type, int kD>
constexpr gpu::AttentionKernel attention_forward_eight() {
  using Config = EightConfig<Type, kD>;
  return attention_kernel_of<Config>([](const AttentionArgs& a, void* stream) {
    return launch_attention<attention_forward_of_bytes<Config>, Config>(a, stream);
  });
}

}  // namespace falchion::sm80
