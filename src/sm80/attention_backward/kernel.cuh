// src/sm80/attention_backward/kernel.cuh: the kernels of softmax attention's backward pass that support every feature.
// One sweep owns tiles of keys and makes grad_k and grad_v, another owns tiles of query rows and makes grad_q. Both
// compute S and dP, so together they make seven products instead of five. In return no sum passes from CTA to CTA: the
// bits are the same in each run, and the workspace holds two numbers for each row. ref/ defines the result; this file
// gives the order of the steps. docs/design/attention_backward.md has the measurements.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_backward/around.hpp"
#include "gpu/blocks/stream_order.cuh"
#include "sm80/attention_backward/load.cuh"
#include "sm80/attention_backward/pairs.cuh"
#include "sm80/attention_backward/store.cuh"

namespace falchion::sm80 {

using namespace gpu;

/// The sum of x over the CTA, the same in each run. Valid in thread 0. `shared` has room for a number of each warp.
template <int kThreads>
FALCHION_DEVICE float sum_over_cta(float x, float* shared) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += shared[warp];
  return sum;
}

/// One sweep. Its steps: the tiles [begin, end) of the first head, then of the next.
template <class Math, class Pairs, Owner owner>
__global__ void __launch_bounds__(Math::kThreads, Math::kCtas)
    attention_backward(const __grid_constant__ AttentionBackwardArgs a, const __grid_constant__ BackwardDivisors by) {
  using Element = typename Math::Element;
  constexpr bool kKeys = owner == Owner::keys;
  constexpr int kOwn = Math::kOwn, kVisited = Math::kVisited;
  extern __shared__ __align__(128) unsigned char memory[];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const BackwardTile t = BackwardTile::of<owner, kOwn, kVisited>(a, by, static_cast<int>(blockIdx.x));
  if (t.own0 >= t.own_length<owner>()) return;
  const BackwardShared<Math> shared{memory};
  const BackwardLayout layout = BackwardLayout::of(a);
  const auto statistic = [&](int h, int row) {
    return statistic_of(a, layout, layout.first_row(a, t.b, h, t.q.begin), row, t.q.length);
  };
  const int thread = static_cast<int>(threadIdx.x), tiles = t.end - t.begin, steps = tiles * t.heads;
  const auto head = [&](int step) { return t.h + (kKeys ? step / tiles : 0); };
  const auto visited0 = [&](int step) { return (t.begin + (kKeys ? step % tiles : step)) * kVisited; };

  const auto load_visited = [&](int step) {
    const auto side = kKeys ? Side<Element>::of_rows(a, t.q, head(step)) : Side<Element>::of_keys(a, t.k, t.h_kv);
    load_side<Math, kVisited, Pairs::kAligned>(a, side, visited0(step), shared.visited_score(step),
                                               shared.visited_value(step));
  };
  // The statistics of the visited rows are read one step ahead, into a register of each thread.
  RowStatistic next;
  const auto read_statistic = [&](int step) {
    if (kKeys && thread < kVisited) next = statistic(head(step), visited0(step) + thread);
  };
  const auto keep_statistic = [&](int step) {
    if (kKeys && thread < kVisited) shared.visited_statistics(step)[thread] = next;
  };

  const auto own = kKeys ? Side<Element>::of_keys(a, t.k, t.h_kv) : Side<Element>::of_rows(a, t.q, t.h);
  load_side<Math, kOwn, Pairs::kAligned>(a, own, t.own0, shared.own_score(), shared.own_value());
  if (!kKeys && thread < kOwn) shared.own_statistics()[thread] = statistic(t.h, t.own0 + thread);
  if (steps > 0) {
    load_visited(0);
    read_statistic(0);
    keep_statistic(0);
  }
  cp_async_fence();

  Pairs pairs(a);
  typename Math::Output of_score, of_value;  // grad_k and grad_v, or grad_q and nothing
  of_score.clear();
  of_value.clear();
  bool own_dead = false;
  if (!kKeys) {
    cp_async_wait<0>();
    __syncthreads();
    own_dead = __syncthreads_or(thread < kOwn && counts_for_nothing(shared.own_statistics()[thread]));
    if (own_dead) clear_dead_rows<Math, kOwn>(shared.own_statistics(), shared.own_score(), shared.own_value());
  }
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<0>();
    // The tile has arrived, and no thread still reads the previous one.
    const bool dead = __syncthreads_or(kKeys && thread < kVisited &&
                                       counts_for_nothing(shared.visited_statistics(step)[thread % kVisited]));
    if (dead) {
      clear_dead_rows<Math, kVisited>(shared.visited_statistics(step), shared.visited_score(step),
                                      shared.visited_value(step));
      __syncthreads();
    }
    const bool more = step + 1 < steps;
    if (more) read_statistic(step + 1);
    if (Math::kStages == 2 && more) load_visited(step + 1);
    if (Math::kStages == 2) cp_async_fence();

    typename Math::Scores s, dp;
    Math::multiply(s, shared.own_score(), shared.visited_score(step));   // S = Q K^T, or its transpose
    Math::multiply(dp, shared.own_value(), shared.visited_value(step));  // dP = dO V^T
    const int q0 = kKeys ? visited0(step) : t.own0, k0 = kKeys ? t.own0 : visited0(step);
    const bool all_seen = !dead && !own_dead && t.all_seen(q0, kKeys ? kVisited : kOwn, k0, kKeys ? kOwn : kVisited);
    pairs.template apply<owner>(
        {t.b, head(step), q0, k0, kKeys ? shared.visited_statistics(step) : shared.own_statistics(), t.k, t.mask,
         all_seen},
        s, dp);
    if constexpr (kKeys)
      Math::add_product(of_value, s, shared.visited_value(step), t.part, shared.exchange());  // dV += P^T dO
    // dK += dS^T Q, or dQ += dS K
    Math::add_product(of_score, dp, shared.visited_score(step), t.part, shared.exchange());
    if (more) keep_statistic(step + 1);
    if constexpr (Math::kStages == 1) {
      __syncthreads();
      if (more) load_visited(step + 1);
      cp_async_fence();
    }
  }
  cp_async_wait<0>();

  const int column0 = t.part * Math::kColumns;
  if constexpr (kKeys) {
    const auto all = [](int) { return true; };
    store_gradient<Element>(of_score, a.grad_k, t.k, t.h_kv, t.own0, column0, static_cast<int>(a.d_qk), a.scale, a,
                            all);
    store_gradient<Element>(of_value, a.grad_v, t.k, t.h_kv, t.own0, column0, static_cast<int>(a.d_v), 1, a, all);
  } else {
    const auto counts = [&](int row) { return !counts_for_nothing(shared.own_statistics()[row]); };
    if (a.grad_q.data != nullptr)
      store_gradient<Element>(of_score, a.grad_q, t.q, t.h, t.own0, column0, static_cast<int>(a.d_qk), a.scale, a,
                              counts);
    if (a.grad_alibi.data == nullptr || t.part != 0) return;
    const float sum = sum_over_cta<Math::kThreads>(pairs.slope_sum, reinterpret_cast<float*>(memory));
    if (thread == 0) layout.slope_sums(a, t.b, t.h)[t.tile] = -sum;
  }
}

/// Enqueues one sweep and returns a cudaError_t.
template <class Math, class Pairs, Owner owner>
cudaError_t launch_sweep(const AttentionBackwardArgs& a, void* stream) {
  constexpr int kParts = Math::kD / Math::kColumns;
  const std::int64_t blocks = backward_blocks(a, owner, kParts);
  if (blocks > INT32_MAX)
    return cudaErrorInvalidConfiguration;  // packed lengths are known too late for the plan to check
  if (blocks == 0) return cudaSuccess;
  return launch_kernel<attention_backward<Math, Pairs, owner>>(static_cast<unsigned>(blocks), Math::kThreads,
                                                               Math::kSharedBytes, stream, a.early, a,
                                                               BackwardDivisors(a, owner, kParts));
}

/// Enqueues the whole pass except grad_bias and returns a cudaError_t.
template <class Math, class Pairs>
int launch_attention_backward(const AttentionBackwardArgs& a, void* stream) {
  int error = launch_before_backward<typename Math::Element>(a, Pairs::kUnit, 0, nullptr, stream);
  if (error == cudaSuccess && a.grad_k.data != nullptr) error = launch_sweep<Math, Pairs, Owner::keys>(a, stream);
  if (error == cudaSuccess && (a.grad_q.data != nullptr || a.grad_alibi.data != nullptr))
    error = launch_sweep<Math, Pairs, Owner::rows>(a, stream);
  return error == cudaSuccess ? launch_slope_sums(a, Math::kOwn, stream) : error;
}

template <class Math>
constexpr gpu::AttentionBackwardKernel attention_backward_kernel_of(int (*launch)(const AttentionBackwardArgs&,
                                                                                  void* stream)) {
  return {launch,
          {.d = Math::kD,
           .rows = Math::kOwn,
           .keys = Math::kOwn,
           .threads = Math::kThreads,
           .ctas = Math::kCtas,
           .shared_bytes = Math::kSharedBytes}};
}

}  // namespace falchion::sm80
