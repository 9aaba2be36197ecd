// src/sm80/attention_backward/once/sums.cuh: the sums of grad_q, to which the CTAs of a head add one after another, and
// the small kernel that turns them into grad_q.
#pragma once

#include "base/host_device.hpp"
#include "gpu/attention_backward/store.cuh"
#include "sm80/attention_backward/once/config.hpp"

namespace falchion::sm80 {

using namespace gpu;

/// The sums of one tile of dQ, in the register order of the threads that make them: eight times four numbers of each
/// thread. From Hopper on a thread adds four at a time, and they are contiguous. Before, it adds single ones, and those
/// of neighbouring lanes are contiguous.
template <int kThreads>
struct TileSums {
  float* tile;

  FALCHION_DEVICE void store(int n, const Sums& x) const {
#if __CUDA_ARCH__ >= 900
    *reinterpret_cast<float4*>(at(n, 0)) = {x[0], x[1], x[2], x[3]};
#else
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) *at(n, i) = x[i];
#endif
  }
  FALCHION_DEVICE void add(int n, const Sums& x) const {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(at(n, 0))),
                 "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
#else
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i)
      asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(at(n, i))), "f"(x[i])
                   : "memory");
#endif
  }
  FALCHION_DEVICE void load(int n, Sums& x) const {
#if __CUDA_ARCH__ >= 900
    const float4 all = *reinterpret_cast<const float4*>(at(n, 0));
    x[0] = all.x;
    x[1] = all.y;
    x[2] = all.z;
    x[3] = all.w;
#else
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = *at(n, i);
#endif
  }

 private:
  FALCHION_DEVICE float* at(int n, int i) const {
    const int thread = static_cast<int>(hidden(threadIdx.x));
#if __CUDA_ARCH__ >= 900
    return tile + n * (4 * kThreads) + thread * 4 + i;
#else
    return tile + (n * 4 + i) * kThreads + thread;
#endif
  }
};

/// How many CTAs have added to a tile of sums, without waiting for a certain number.
FALCHION_DEVICE unsigned turns_passed(const unsigned* turns) {
  unsigned now;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(turns)) : "memory");
  return now;
}
FALCHION_DEVICE void wait_for_turn(const unsigned* turns, unsigned wanted) {
  unsigned now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(turns)) : "memory");
  } while (now < wanted);
}
/// Passes the turn to the next CTA. Whatever warps have stored or added before the preceding barrier is visible to the
/// CTA that has waited for the turn.
FALCHION_DEVICE void give_turn(unsigned* turns) {
  asm volatile("fence.acq_rel.gpu;\nred.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(turns))
               : "memory");
}

/// Turns the sums of one tile of rows of one head into grad_q. A masked-out row gets 0, and so does a tile that sees no
/// key.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads)
    finish_grad_q(const __grid_constant__ AttentionBackwardArgs a, const __grid_constant__ BackwardDivisors by) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const auto t = SummedRows<Config::kRows>::of(a, by, static_cast<int>(blockIdx.x));
  if (t.row0 >= t.q.length) return;
  const TileSums<Config::kThreads> sums{BackwardLayout::of(a).grad_q_sums(a) + t.first * Config::kD};
  const int warp = static_cast<int>(threadIdx.x) / 32;
  CUTE_UNROLL
  for (int m = 0; m < 2; ++m) {
    Sums sum[4] = {};
    CUTE_UNROLL
    for (int n = 0; n < 4; ++n) {
      if (t.summed) sums.load(4 * m + n, sum[n]);
    }
    store_rows<typename Config::Element, 32, 1>(
        a, t.to(a, warp % Config::kStripsDq * 32 + 16 * m, warp / Config::kStripsDq * 32),
        [&](int e) { return sum[e / 4][e % 4]; }, [&](int row) { return t.counts(a, row); });
  }
}

}  // namespace falchion::sm80
